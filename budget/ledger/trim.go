package ledger

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	trimEvery = 10 * time.Second
	// trimStep is the number of entries that one command removes, so that other commands do not
	// wait long.
	trimStep = 10_000
)

// Trimmer bounds the memory of all ledgers to a share of Redis's memory, because very cheap calls
// could fill it with entries otherwise. Daily sums are not trimmed, so no total is lost. It must
// not be used by more than one goroutine.
type Trimmer struct {
	ledger *Ledger
	orgs   func() []string
	share  int // of the memory of each server, in percent
}

// NewTrimmer returns a Trimmer of the orgs' ledgers; Run starts it. A share of 100 percent disables
// it.
func NewTrimmer(l *Ledger, orgs func() []string, share int) *Trimmer {
	return &Trimmer{ledger: l, orgs: orgs, share: share}
}

// Run trims every ten seconds until ctx ends.
func (t *Trimmer) Run(ctx context.Context) error {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := t.Trim(ctx); err != nil && ctx.Err() == nil {
			t.ledger.o.Log.Warn("ledgers not trimmed, will retry", "err", err)
		}
	}
}

// Trim removes the oldest entries of the largest ledgers on servers whose ledgers exceed their
// share of memory. Several processes may run it concurrently.
func (t *Trimmer) Trim(ctx context.Context) error {
	if t.share >= 100 {
		return nil
	}
	servers, err := t.servers(ctx)
	for _, s := range servers {
		err = errors.Join(err, t.trimServer(ctx, s))
	}
	return err
}

type server struct {
	redisconn.DB
	places []string
}

func (t *Trimmer) servers(ctx context.Context) (map[string]*server, error) {
	out := map[string]*server{}
	for _, org := range t.orgs() {
		err := t.ledger.each(ctx, org, func(place string) error {
			primary, err := t.ledger.o.Redis.PrimaryOf(ctx, Key(place, "ledger"))
			if err != nil {
				return t.ledger.o.Fault("trim ledgers", err)
			}
			s := out[primary.Name()]
			if s == nil {
				s = &server{DB: primary}
				out[primary.Name()] = s
			}
			s.places = append(s.places, place)
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (t *Trimmer) trimServer(ctx context.Context, s *server) error {
	used, most, err := capacity.Usage(ctx, s)
	if err != nil {
		return err
	}
	most = most / 100 * int64(t.share)
	if most == 0 || used <= most { // the ledgers are part of used
		return nil
	}
	bytes, entries, err := t.sizes(ctx, s)
	if err != nil {
		return err
	}
	level := levelOf(bytes, most)
	for i, place := range s.places {
		if bytes[i] <= level {
			continue
		}
		keep := int64(float64(entries[i]) * (float64(level) / float64(bytes[i])))
		if err := t.cut(ctx, s, place, entries[i], keep); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trimmer) sizes(ctx context.Context, s *server) (bytes, entries []int64, err error) {
	pipe := s.Pipeline()
	var sizes, lengths []redisconn.Cmd[int64]
	for _, place := range s.places {
		sizes = append(sizes, pipe.MemoryUsage(ctx, Key(place, "ledger")))
		lengths = append(lengths, pipe.XLen(ctx, Key(place, "ledger")))
	}
	err = pipe.Exec(ctx)
	if err != nil && !redisconn.IsNil(err) { // an org without a ledger
		return nil, nil, t.ledger.o.Fault("size of ledgers", err)
	}
	for i := range sizes {
		bytes = append(bytes, sizes[i].Val())
		entries = append(entries, lengths[i].Val())
	}
	return bytes, entries, nil
}

func (t *Trimmer) cut(ctx context.Context, s *server, place string, entries, keep int64) error {
	removed := int64(0)
	for range (entries-keep)/trimStep + 1 {
		n, err := s.XTrimMaxLenApprox(ctx, Key(place, "ledger"), keep, trimStep).Result()
		if err != nil {
			return t.ledger.o.Fault("trim ledger", err)
		}
		removed += n
		if n == 0 {
			break
		}
	}
	if removed > 0 {
		t.ledger.metrics.trimmed.Add(float64(removed))
		t.ledger.o.Log.Warn("oldest ledger entries trimmed, ledgers reached ledger.memory_share of redis memory",
			"org", place, "entries", removed, "kept", entries-removed)
	}
	return nil
}

// levelOf returns the largest size that each may have so that all together have at most most;
// smaller ones are not cut.
func levelOf(sizes []int64, most int64) int64 {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, n := range sizes {
		share := most / int64(len(sizes)-i)
		if n > share {
			return share
		}
		most -= n
	}
	return math.MaxInt64
}
