package queue

import (
	"time"

	"github.com/llmguard/llmguard/budget"
)

// shares is what this process lets through of a pool's quota while Redis is
// away; Queue.mu guards it.
type shares struct {
	requests, tokens budget.Share
	open             int
}

// sharesStart is what the shares' time counts from.
var sharesStart = time.Now()

// TakeShare asks for one request of so many tokens from this process's share of
// the pool's quota (Options.LocalShare), without asking Redis: for live calls
// that go on while it is away. What other processes take is not known. The
// error is a *BusyError.
func (q *Queue) TakeShare(poolID string, tokens int64) (*Grant, error) {
	p, err := q.pool(poolID)
	if err != nil {
		return nil, err
	}
	tokens = max(tokens, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[p.ID]
	if s == nil {
		s = &shares{}
		q.shares[p.ID] = s
	}
	at, rpm, tpm := time.Since(sharesStart), budget.ShareOf(p.RPM, q.opts.LocalShare), budget.ShareOf(p.TPM, q.opts.LocalShare)
	busy := func(reason string, wait time.Duration) (*Grant, error) {
		q.metrics.grants.WithLabelValues(p.ID, "share_"+reason).Inc()
		return nil, &BusyError{Wait: max(wait, time.Second), Reason: reason, Share: true}
	}
	switch {
	case p.RPM > 0 && s.requests.Used(at, time.Minute)+1 > rpm:
		return busy("rpm", s.requests.Frees(at, time.Minute))
	case p.TPM > 0 && s.tokens.Used(at, time.Minute)+tokens > tpm:
		return busy("tpm", s.tokens.Frees(at, time.Minute))
	case p.Concurrency > 0 && int64(s.open)+1 > budget.ShareOf(int64(p.Concurrency), q.opts.LocalShare):
		return busy("concurrency", 0)
	}
	s.requests.Take(at, time.Minute, 1)
	s.tokens.Take(at, time.Minute, tokens)
	s.open++
	q.metrics.grants.WithLabelValues(p.ID, "share").Inc()
	return &Grant{Pool: p.ID, Tokens: tokens, born: time.Now(), share: true}, nil
}

// giveShare ends a grant of a share; what it took of the minute stays taken.
// q.mu is held.
func (q *Queue) giveShare(p *pool, g *Grant) {
	if g.share && !g.ended {
		g.ended = true
		q.shares[p.ID].open--
	}
}
