package queue

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// Pool is a provider's quota and the bounds of its queue.
type Pool struct {
	// ID names the pool, of [a-z0-9_-].
	ID string
	// The provider's quota, see [quota.Pool].
	RPM, TPM     int64
	Split        bool
	OTPM         int64
	Concurrency  int
	FixedQuota   bool
	ActualTokens bool
	MaxPause     time.Duration
	// MaxJobs and MaxBytes bound the unfinished jobs. 0 is 100,000 jobs and 1 GiB,
	// negative is unbounded.
	MaxJobs  int
	MaxBytes int64
	// MaxAge is how long a job may wait before it expires. 0 is 24 h.
	MaxAge time.Duration
	// ResultTTL is how long an ended job and its result stay readable. 0 is 24 h.
	ResultTTL time.Duration
}

// pool is a Pool with the values derived from it. It is immutable except for its scripts in
// flight, its activity and announced.
type pool struct {
	Pool
	code   string
	keys   []string
	quota  quota.Pool
	limits []any // ARGV of quota_limits in quota.lua

	puts, starts, finishes *coalescedScript
	activity
	means     runMeans
	announced atomic.Int64 // when it was recorded as an org's own pool, in Unix seconds
}

func newPool(p Pool, o Options) (*pool, error) {
	if base, org := providers.SplitPool(p.ID); !plain(base) || p.ID != base && !plain(org) {
		return nil, fmt.Errorf("queue: pool %q is not of [a-z0-9_-]", p.ID)
	}
	if p.RPM < 0 || p.TPM < 0 || p.OTPM < 0 || p.Concurrency < 0 || p.MaxAge < 0 || p.ResultTTL < 0 {
		return nil, fmt.Errorf("queue: pool %q has a negative quota or time", p.ID)
	}
	p.MaxJobs = cmp.Or(p.MaxJobs, 100_000)
	p.MaxBytes = cmp.Or(p.MaxBytes, 1<<30)
	p.MaxAge = cmp.Or(p.MaxAge, 24*time.Hour)
	p.ResultTTL = cmp.Or(p.ResultTTL, 24*time.Hour)
	books := quota.Pool{
		ID: p.ID, RPM: p.RPM, TPM: p.TPM, Split: p.Split, OTPM: p.OTPM, Concurrency: p.Concurrency, Burst: o.Burst,
		FixedQuota: p.FixedQuota, ActualTokens: p.ActualTokens, MaxPause: p.MaxPause,
	}
	limits := books.Limits()
	ttl, dead := p.ResultTTL.Milliseconds(), o.DeadTTL.Milliseconds()
	keys := poolKeys(p.ID)
	return &pool{
		Pool:   p,
		code:   poolCode(p.ID),
		keys:   keys,
		quota:  books,
		limits: limits,
		puts: newCoalescedScript("put", putScript,
			append(append([]any{o.Grace.Microseconds(), schemaVersion}, p.bounds(o)...),
				append(slices.Clone(limits), workChannel(p.ID))...)),
		starts: newCoalescedScript("start", startScript,
			append(append([]any{o.MaxAttempts, o.Lease.Microseconds(), ttl, dead, o.DeadLetters}, limits...),
				o.Grace.Microseconds(), grantMoves.Microseconds())),
		finishes: newCoalescedScript("finish", finishScript, append([]any{ttl, dead, o.DeadLetters}, limits...)),
	}, nil
}

// bounds returns the maximum number of jobs and bytes of the pool, of an org in it and of a
// flow; 0 is unbounded.
func (p Pool) bounds(o Options) []any {
	share := func(n int64, percent int) int64 {
		if n < 0 {
			return 0
		}
		return max(n*int64(percent)/100, 1)
	}
	jobs, bytes := int64(p.MaxJobs), p.MaxBytes
	return []any{
		max(jobs, 0), max(bytes, 0), share(jobs, o.OrgShare), share(bytes, o.OrgShare),
		share(jobs, o.FlowShare), share(bytes, o.FlowShare),
	}
}

// with returns the pool's keys and one more.
func (p *pool) with(key string) []string {
	keys := make([]string, len(p.keys), len(p.keys)+1)
	copy(keys, p.keys)
	return append(keys, key)
}
