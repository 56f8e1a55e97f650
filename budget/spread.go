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

// MostParts is the maximum number of parts of an org, and the highest number of one.
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

const placeLetters = "abcdefghijklmnopqrstuvwxyz"

// place returns the hash tag of the call's keys: its org, a part of it such as acme#33cj, or the scope
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
	return evenly(org, org+partSep+strconv.Itoa(part), (part-1)*clusterSlots/MostParts)
}

// clusterSlots is the number of hash slots of a Redis Cluster.
const clusterSlots = 1 << 14

// evenly returns a name with two letters appended, such that its slot is at a distance after that of
// the org, or closely after. So the parts of an org are at equal distances, and masters that have
// equal ranges of slots have equally many of them.
func evenly(org, name string, distance int) string {
	first, crc := crc16(0, org), crc16(0, name)
	var letters [2]byte
	for letters[0] = 'a'; letters[0] <= 'z'; letters[0]++ {
		next := crcOf(crc, letters[0])
		for letters[1] = 'a'; letters[1] <= 'z'; letters[1]++ {
			if (crcOf(next, letters[1])-first-uint16(distance))%clusterSlots < clusterSlots/MostParts/2 {
				return name + string(letters[:])
			}
		}
	}
	return name // anywhere
}

// crc16 continues the checksum from which Redis Cluster computes slots.
func crc16(crc uint16, text string) uint16 {
	for i := range len(text) {
		crc = crcOf(crc, text[i])
	}
	return crc
}

func crcOf(crc uint16, b byte) uint16 {
	const poly = 0x1021
	crc = crc<<4 ^ crc>>12*poly ^ uint16(b>>4)*poly
	return crc<<4 ^ crc>>12*poly ^ uint16(b&15)*poly
}

// splitPlace returns the org and the part of a place.
func splitPlace(place string) (org string, part int) {
	org, number, _ := strings.Cut(place, partSep)
	part, err := strconv.Atoi(strings.TrimRight(number, placeLetters))
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
	out := make([]int, max(1, min(sp.Parts, MostParts)))
	for i := range out {
		out[i] = (i*MostParts+len(out)-1)/len(out) + 1
	}
	return out
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
	var all []string
	for _, part := range p.of(org).numbers() {
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
