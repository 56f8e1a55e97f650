package budget

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// Spread divides the money of a busy org into parts, each in a slot of its own on a cluster. All
// calls of one subject are in one part, so limits on that subject hold exactly. The zero value
// means one part.
type Spread struct {
	Parts int // 1 to MostParts
	// By is User or IP. By users, limits on keys hold as well, because a key has one user.
	By Subject
	// IPv6Prefix is that of the limits by address.
	IPv6Prefix int
}

// subjectOf returns whose calls are in one part with the call.
func (sp Spread) subjectOf(c ledger.Call) string {
	if sp.By == IP {
		return Limit{IPv6Prefix: sp.IPv6Prefix}.Network(c.IP)
	}
	return c.User
}

// partOf returns the call's part. Calls without a subject, such as manual corrections of the whole
// org, are in the first.
func (sp Spread) partOf(c ledger.Call) int {
	subject := sp.subjectOf(c)
	if sp.Parts <= 1 || subject == "" {
		return 1
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(subject))
	all := sp.numbers()
	return all[mixed(sum.Sum64())>>32*uint64(len(all))>>32]
}

// mixed makes the high bits depend on all of them: it is the finalizer of MurmurHash3.
func mixed(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// numbers returns the numbers of the parts, at equal distances of 1 to MostParts. If Parts doubles,
// half of the subjects of each part move.
func (sp Spread) numbers() []int {
	out := make([]int, max(1, min(sp.Parts, ledger.MostParts)))
	for i := range out {
		out[i] = (i*ledger.MostParts+len(out)-1)/len(out) + 1
	}
	return out
}

// whole reports whether the call's part has all that the limit counts for the call's subject.
func (sp Spread) whole(l *Limit, c ledger.Call) bool {
	switch {
	case sp.Parts <= 1:
		return true
	case l.Subject.Includes(sp.By), l.Subject.Includes(Key) && sp.By != IP:
		return sp.subjectOf(c) != ""
	default:
		return false
	}
}

// places finds the parts of orgs.
type places struct {
	rdb    redisconn.DB
	spread func(org string) Spread // Options.Spread
	single sync.Map                // orgs that had one part only, with the time.Time of that answer
}

func (p *places) of(org string) Spread {
	if p.spread == nil || unlisted(org) {
		return Spread{}
	}
	return p.spread(org)
}

// put chooses the part of a call, unless it was chosen before.
func (p *places) put(c ledger.Call) ledger.Call {
	if c.Part == 0 {
		c.Part = p.of(c.Org).partOf(c)
	}
	return c
}

// now returns the places in which calls of the org are held.
func (p *places) now(org string) []string {
	var all []string
	for _, part := range p.of(org).numbers() {
		all = append(all, ledger.PlaceOf(org, part))
	}
	return all
}

// ever returns all places in which the org may have data, of earlier spreads too.
func (p *places) ever(ctx context.Context, org string) ([]string, error) {
	all := p.now(org)
	if unlisted(org) {
		return all, nil
	}
	used, err := p.rdb.SMembers(ctx, ledger.Key(org, ledger.PartsName)).Result()
	if err != nil {
		return nil, storeError("read parts", err)
	}
	for _, text := range used {
		part, err := strconv.Atoi(text)
		if place := ledger.PlaceOf(org, part); err == nil && !slices.Contains(all, place) {
			all = append(all, place)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		_, n := ledger.SplitPlace(a)
		_, m := ledger.SplitPlace(b)
		return n - m
	})
	return all, nil
}

// singleFor is for how long an org that had one part is taken to have one.
const singleFor = time.Second

// lately is ever, without asking the store again at once about an org that has one part.
func (p *places) lately(ctx context.Context, org string) ([]string, error) {
	if at, ok := p.single.Load(org); ok && time.Since(at.(time.Time)) < singleFor && p.of(org).Parts <= 1 {
		return []string{org}, nil
	}
	all, err := p.ever(ctx, org)
	if err == nil && len(all) == 1 {
		p.single.Store(org, time.Now())
	}
	return all, err
}

// each calls fn for all places in which the org may have data.
func (p *places) each(ctx context.Context, org string, fn func(place string) error) error {
	all, err := p.ever(ctx, org)
	for _, place := range all {
		err = errors.Join(err, fn(place))
	}
	return err
}

// valid is each for an org id that comes from outside.
func (p *places) valid(ctx context.Context, org string, fn func(place string) error) error {
	if !ledger.ValidOrg(org) {
		return fmt.Errorf("budget: org id %q is empty or has braces or #", org)
	}
	return p.each(ctx, org, fn)
}

// Place chooses the part in which the call is held, for callers that must find the hold again after
// its answer was lost. [Store.Hold] chooses it otherwise.
func (s *Store) Place(c ledger.Call) ledger.Call { return s.places.put(c) }

// LocateAgain is Locate for a call that is held, perhaps once more because the process that held it
// died. If the org was spread less than a second ago, it can then be held twice, until one expires.
func (s *Store) LocateAgain(ctx context.Context, c ledger.Call) (ledger.Call, error) {
	all, err := s.places.lately(ctx, c.Org)
	if err != nil {
		return c, err
	}
	found, err := s.locate(ctx, all, []ledger.Call{c})
	if err != nil {
		return c, err
	}
	return found[0], nil
}

// Locate is [Store.Place] for calls that another process may have held under another spread: each is
// put where the store knows it, held or ended.
func (s *Store) Locate(ctx context.Context, org string, calls []ledger.Call) ([]ledger.Call, error) {
	all, err := s.places.ever(ctx, org)
	if err != nil {
		return nil, err
	}
	return s.locate(ctx, all, calls)
}

// locate puts each call where one of these places knows it.
func (s *Store) locate(ctx context.Context, all []string, calls []ledger.Call) ([]ledger.Call, error) {
	out := make([]ledger.Call, len(calls))
	for i, c := range calls {
		out[i] = s.places.put(c)
	}
	if len(all) == 1 {
		return out, nil
	}
	pipe := s.rdb.Pipeline()
	known := make([]redisconn.Cmd[bool], 0, 2*len(all)*len(calls))
	for _, c := range calls {
		for _, place := range all {
			known = append(known, pipe.HExists(ctx, ledger.Key(place, "holds"), c.HoldID()),
				pipe.HExists(ctx, ledger.Key(place, chunkOf(c)), c.HoldID()))
		}
	}
	if err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, storeError("find holds", err)
	}
	for i := range known {
		if known[i].Val() {
			_, out[i/2/len(all)].Part = ledger.SplitPlace(all[i/2%len(all)])
		}
	}
	return out, nil
}
