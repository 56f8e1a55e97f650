package budget

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// MostParts is the maximum number of parts of an org.
const MostParts = 64

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

// partSep separates an org from the number of its part. No org id contains it.
const partSep = "#"

// place returns the hash tag of the call's keys: its org, a part of it such as acme#3, or the scope
// of a spend cap. The first part has no number, so that an org which is not spread has one place.
func (c Call) place() string {
	if c.Part <= 1 {
		return c.Org
	}
	return placeOf(c.Org, c.Part)
}

func placeOf(org string, part int) string {
	if part <= 1 {
		return org
	}
	return org + partSep + strconv.Itoa(part)
}

// splitPlace returns the org and the part of a place.
func splitPlace(place string) (org string, part int) {
	org, number, _ := strings.Cut(place, partSep)
	part, err := strconv.Atoi(number)
	if err != nil {
		return org, 1
	}
	return org, part
}

// OrgOf returns the org of a hash tag.
func OrgOf(tag string) string {
	org, _ := splitPlace(tag)
	return org
}

// subjectOf returns whose calls are in one part with the call.
func (sp Spread) subjectOf(c Call) string {
	if sp.By == IP {
		return Limit{IPv6Prefix: sp.IPv6Prefix}.Network(c.IP)
	}
	return c.User
}

// partOf returns the call's part. Calls without a subject, such as manual corrections of the whole
// org, are in the first.
func (sp Spread) partOf(c Call) int {
	subject := sp.subjectOf(c)
	if sp.Parts <= 1 || subject == "" {
		return 1
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(subject))
	return jump(sum.Sum64(), min(sp.Parts, MostParts)) + 1
}

// jump is the jump consistent hash of Lamping and Veach: if n changes, only the subjects whose part
// is new or gone move, and so start their limits again.
func jump(key uint64, n int) int {
	last, next := int64(-1), int64(0)
	for next < int64(n) {
		last = next
		key = key*2862933555777941757 + 1
		next = int64(float64(last+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return int(last)
}

// whole reports whether the call's part has all that the limit counts for the call's subject.
func (sp Spread) whole(l *Limit, c Call) bool {
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
	rdb    redis.UniversalClient
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
func (p *places) put(c Call) Call {
	if c.Part == 0 {
		c.Part = p.of(c.Org).partOf(c)
	}
	return c
}

// now returns the places in which calls of the org are held.
func (p *places) now(org string) []string {
	all := []string{org}
	for part := 2; part <= min(p.of(org).Parts, MostParts); part++ {
		all = append(all, placeOf(org, part))
	}
	return all
}

// partsName is the org's SET of the parts that ever had calls, except the first.
const partsName = "parts"

// ever returns all places in which the org may have data, of earlier spreads too.
func (p *places) ever(ctx context.Context, org string) ([]string, error) {
	all := p.now(org)
	if unlisted(org) {
		return all, nil
	}
	used, err := p.rdb.SMembers(ctx, key(org, partsName)).Result()
	if err != nil {
		return nil, storeError("read parts", err)
	}
	for _, text := range used {
		part, err := strconv.Atoi(text)
		if place := placeOf(org, part); err == nil && !slices.Contains(all, place) {
			all = append(all, place)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		_, n := splitPlace(a)
		_, m := splitPlace(b)
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

// note records the part of a place in a batch of commands, for ever.
func note(ctx context.Context, pipe redis.Pipeliner, place string) {
	if org, part := splitPlace(place); part > 1 {
		pipe.SAdd(ctx, key(org, partsName), part)
	}
}

// Place chooses the part in which the call is held, for callers that must find the hold again after
// its answer was lost. [Store.Hold] chooses it otherwise.
func (s *Store) Place(c Call) Call { return s.places.put(c) }

// LocateAgain is Locate for a call that is held, perhaps once more because the process that held it
// died. If the org was spread less than a second ago, it can then be held twice, until one expires.
func (l *Ledger) LocateAgain(ctx context.Context, c Call) (Call, error) {
	all, err := l.places.lately(ctx, c.Org)
	if err != nil {
		return c, err
	}
	found, err := l.locate(ctx, all, []Call{c})
	if err != nil {
		return c, err
	}
	return found[0], nil
}

// Locate is [Store.Place] for calls that another process may have held under another spread: each is
// put where the store knows it, held or ended.
func (l *Ledger) Locate(ctx context.Context, org string, calls []Call) ([]Call, error) {
	all, err := l.places.ever(ctx, org)
	if err != nil {
		return nil, err
	}
	return l.locate(ctx, all, calls)
}

// locate puts each call where one of these places knows it.
func (l *Ledger) locate(ctx context.Context, all []string, calls []Call) ([]Call, error) {
	out := make([]Call, len(calls))
	for i, c := range calls {
		out[i] = l.places.put(c)
	}
	if len(all) == 1 {
		return out, nil
	}
	pipe := l.rdb.Pipeline()
	known := make([]*redis.BoolCmd, 0, 2*len(all)*len(calls))
	for _, c := range calls {
		for _, place := range all {
			known = append(known, pipe.HExists(ctx, key(place, "holds"), c.holdID()),
				pipe.HExists(ctx, key(place, c.chunk()), c.holdID()))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, storeError("find holds", err)
	}
	for i := range known {
		if known[i].Val() {
			_, out[i/2/len(all)].Part = splitPlace(all[i/2%len(all)])
		}
	}
	return out, nil
}
