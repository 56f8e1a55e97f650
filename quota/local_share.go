package quota

import (
	"time"

	"github.com/llmguard/llmguard/budget/outage"
)

// share is what this process grants of a pool's quota while Redis is unavailable. Quota.mu
// guards it.
type share struct {
	requests, tokens outage.Share
	open             int
}

// sharesStart is the origin of the shares' time.
var sharesStart = time.Now()

// TakeShare takes one request with the given tokens from this process's share of the pool's
// quota (Options.LocalShare) without Redis, for live calls that continue while it is
// unavailable. Shares of other processes are not coordinated. The error is a *BusyError.
func (q *Quota) TakeShare(poolID string, tokens int64) (*Grant, error) {
	p, err := q.pool(poolID)
	if err != nil {
		return nil, err
	}
	tokens = max(tokens, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[p.ID]
	if s == nil {
		s = &share{}
		q.shares[p.ID] = s
	}
	at := time.Since(sharesStart)
	if refused := q.exceeds(p, s, at, tokens); refused != nil {
		q.metrics.grants.WithLabelValues(p.ID, "share_"+refused.Reason).Inc()
		return nil, refused
	}
	s.requests.Take(at, time.Minute, 1)
	s.tokens.Take(at, time.Minute, tokens)
	s.open++
	q.metrics.grants.WithLabelValues(p.ID, "share").Inc()
	return &Grant{Pool: p.ID, Tokens: tokens, born: time.Now(), share: true}, nil
}

// exceeds returns why a share has no room for another call; nil if it has.
func (q *Quota) exceeds(p *pool, s *share, at time.Duration, tokens int64) *BusyError {
	part := func(whole int64) int64 { return outage.ShareOf(whole, q.opts.LocalShare) }
	busy := func(reason string, wait time.Duration) *BusyError {
		return &BusyError{Wait: max(wait, time.Second), Reason: reason, Share: true}
	}
	switch {
	case p.RPM > 0 && s.requests.Used(at, time.Minute)+1 > part(p.RPM):
		return busy("rpm", s.requests.Frees(at, time.Minute))
	case p.TPM > 0 && s.tokens.Used(at, time.Minute)+tokens > part(p.TPM):
		return busy("tpm", s.tokens.Frees(at, time.Minute))
	case p.Concurrency > 0 && int64(s.open)+1 > part(int64(p.Concurrency)):
		return busy("concurrency", 0)
	}
	return nil
}

// giveShare ends a grant of a share. What it took of the minute stays taken. q.mu must be
// held.
func (q *Quota) giveShare(p *pool, g *Grant) {
	if g.share && !g.ended {
		g.ended = true
		q.shares[p.ID].open--
	}
}
