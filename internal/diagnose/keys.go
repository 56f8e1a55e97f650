package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// KeyReport is what a deployment keeps in Redis. Sizes that are not exact are estimated from a
// sample.
type KeyReport struct {
	// Keys were counted, and Measured of them sampled. Complete is false if there are more keys
	// than were allowed to be read.
	Keys     int64 `json:"keys"`
	Measured int64 `json:"measured"`
	Complete bool  `json:"complete"`
	// Kinds are the patterns of docs/internals/redis-keys.md, the largest first; keys that match
	// none are "other".
	Kinds []KindOfKeys `json:"kinds"`
	// Orgs are the largest, by the keys that have their hash tag.
	Orgs []OrgKeys `json:"orgs"`
	// Suspects may grow without end.
	Suspects []SuspectKeys `json:"suspects"`
}

// KindOfKeys is the keys of one pattern. Measured is how many of them Bytes are estimated from.
type KindOfKeys struct {
	Kind     string `json:"kind"`
	Keys     int64  `json:"keys"`
	Bytes    int64  `json:"bytes"`
	Measured int64  `json:"measured"`
}

// OrgKeys is the keys of one org.
type OrgKeys struct {
	Org   string `json:"org"`
	Keys  int64  `json:"keys"`
	Bytes int64  `json:"bytes"`
}

// SuspectKeys is keys without a lifetime that should have one: Keys of the Measured ones.
type SuspectKeys struct {
	Kind     string `json:"kind"`
	Keys     int64  `json:"keys"`
	Measured int64  `json:"measured"`
	Example  string `json:"example"`
}

// KeyBounds limit what a report costs Redis.
type KeyBounds struct {
	MostKeys  int64 // read at most so many keys of the database
	PerSecond int   // and so many a second
	Measure   int64 // measure about so many
	MostOrgs  int   // orgs in the report
}

const (
	// scanPage is how many keys one command reads. Redis serves no other client meanwhile, for a
	// tenth of a millisecond.
	scanPage = 500
	// alwaysMeasured is how many keys of each kind are measured, however many keys there are.
	alwaysMeasured = 20

	otherKeys = "other"
)

// kept is an org, empty for all of them and for what belongs to none, and a pattern.
type kept struct{ org, pattern string }

type keyCount struct {
	keys, measured, bytes, endless int64
	example                        string // one of the endless
}

type keyReader struct {
	bounds KeyBounds
	kinds  []keyKind
	every  int64 // one key in so many is measured
	read   int64
	counts map[kept]*keyCount
}

type found struct {
	name string
	kept
	lasts bool
	usage redisconn.Cmd[int64]
	ttl   redisconn.Cmd[time.Duration]
}

func (r *keyReader) of(k kept) *keyCount {
	if r.counts[k] == nil {
		r.counts[k] = &keyCount{}
	}
	return r.counts[k]
}

// Keys reports what keys there are and what memory they take. It only reads: SCAN for all keys,
// MEMORY USAGE and PTTL for a sample. While a cluster moves slots, keys may be counted twice or
// not at all.
func Keys(ctx context.Context, rdb redisconn.DB, b KeyBounds) (*KeyReport, error) {
	r := &keyReader{bounds: b, kinds: newKeyKinds(), counts: map[kept]*keyCount{}}
	nodes, err := redisconn.Primaries(ctx, rdb)
	if err != nil {
		return nil, fmt.Errorf("find the servers: %w", err)
	}
	size := int64(0)
	for _, node := range nodes {
		n, err := node.DBSize(ctx).Result()
		if err != nil {
			return nil, fmt.Errorf("count keys: %w", err)
		}
		size += n
	}
	r.every = max(1, min(size, b.MostKeys)/max(1, b.Measure))
	complete := true
	for _, node := range nodes {
		all, err := r.scan(ctx, node)
		if err != nil {
			return nil, fmt.Errorf("read keys: %w", err)
		}
		complete = complete && all
	}
	return r.report(complete), nil
}

// scan reads the keys of one server; it returns false if there are too many.
func (r *keyReader) scan(ctx context.Context, node redisconn.DB) (all bool, err error) {
	page := time.NewTicker(max(time.Millisecond, time.Second*scanPage/time.Duration(r.bounds.PerSecond)))
	defer page.Stop()
	var cursor uint64
	for {
		if r.read >= r.bounds.MostKeys {
			return false, nil
		}
		keys, next, err := node.Scan(ctx, cursor, "*", scanPage).Result()
		if err != nil {
			return false, err
		}
		r.read += scanPage // keys of other prefixes cost as much
		if err := r.count(ctx, node, keys); err != nil {
			return false, err
		}
		if next == 0 {
			return true, nil
		}
		cursor = next
		select {
		case <-page.C:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (r *keyReader) count(ctx context.Context, node redisconn.DB, keys []string) error {
	pipe := node.Pipeline()
	var sample []found
	for _, key := range keys {
		f := found{name: key, kept: kept{pattern: otherKeys}, lasts: true}
		i := slices.IndexFunc(r.kinds, func(k keyKind) bool { return k.match(key) })
		if i >= 0 {
			k := &r.kinds[i]
			f.kept, f.lasts = kept{k.org(key), k.pattern}, k.lasts
		}
		kind := r.of(kept{pattern: f.pattern})
		kind.keys++
		if f.org != "" {
			r.of(f.kept).keys++
		}
		if kind.measured < alwaysMeasured || rand.Int64N(r.every) == 0 {
			kind.measured++
			f.usage, f.ttl = pipe.MemoryUsage(ctx, key), pipe.PTTL(ctx, key)
			sample = append(sample, f)
		}
	}
	if len(sample) == 0 {
		return nil
	}
	err := pipe.Exec(ctx)
	if err != nil && !redisconn.IsNil(err) { // a key that has expired since
		return err
	}
	for i := range sample {
		r.measure(&sample[i])
	}
	return nil
}

func (r *keyReader) measure(f *found) {
	bytes := f.usage.Val()
	kind := r.of(kept{pattern: f.pattern})
	kind.bytes += bytes
	if !f.lasts && f.ttl.Val() == -1 {
		kind.endless++
		kind.example = cmp.Or(kind.example, f.name)
	}
	if f.org != "" {
		c := r.of(f.kept)
		c.measured++
		c.bytes += bytes
	}
}

// estimate returns the bytes of all keys; those not measured count as the average of their kind.
func (c *keyCount) estimate(kind *keyCount) int64 {
	return c.bytes + int64(float64(c.keys-c.measured)*float64(kind.bytes)/float64(max(1, kind.measured)))
}

func (r *keyReader) report(complete bool) *KeyReport {
	out := &KeyReport{Complete: complete, Kinds: []KindOfKeys{}, Orgs: []OrgKeys{}, Suspects: []SuspectKeys{}}
	orgs := map[string]*OrgKeys{}
	for k, c := range r.counts {
		bytes := c.estimate(r.counts[kept{pattern: k.pattern}])
		if k.org != "" {
			if orgs[k.org] == nil {
				orgs[k.org] = &OrgKeys{Org: k.org}
			}
			orgs[k.org].Keys, orgs[k.org].Bytes = orgs[k.org].Keys+c.keys, orgs[k.org].Bytes+bytes
			continue
		}
		out.Keys, out.Measured = out.Keys+c.keys, out.Measured+c.measured
		out.Kinds = append(out.Kinds, KindOfKeys{Kind: k.pattern, Keys: c.keys, Bytes: bytes, Measured: c.measured})
		if c.endless > 0 {
			out.Suspects = append(out.Suspects,
				SuspectKeys{Kind: k.pattern, Keys: c.endless, Measured: c.measured, Example: c.example})
		}
	}
	for _, o := range orgs {
		out.Orgs = append(out.Orgs, *o)
	}
	slices.SortFunc(out.Kinds, func(a, b KindOfKeys) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(out.Orgs, func(a, b OrgKeys) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Org, b.Org))
	})
	slices.SortFunc(out.Suspects, func(a, b SuspectKeys) int { return strings.Compare(a.Kind, b.Kind) })
	out.Orgs = out.Orgs[:min(len(out.Orgs), r.bounds.MostOrgs)]
	return out
}
