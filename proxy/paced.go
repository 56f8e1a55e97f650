package proxy

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/quota"
)

// pacer bounds requests about what providers store, which cost no money.
type pacer struct {
	guard *guard.Guard
	reads *reads
}

// paced is what one request about a stored object costs besides money: part of its key's rate, and a request
// of the provider's quota. It is the guard.Quota of a request that is charged a fee.
type paced struct {
	*pacer
	x      *request
	note   ownership.Note
	free   func()
	grant  *quota.Grant // nil: nothing will be sent
	unused bool         // nothing was sent
}

// of returns what a request about an object will cost.
func (p *pacer) of(x *request, n ownership.Note) *paced { return &paced{pacer: p, x: x, note: n} }

// Take implements guard.Quota.
func (p *paced) Take(ctx context.Context, _ *guard.Call) (err error) {
	org, key := p.x.caller.Org, p.x.caller.Key
	p.free, err = p.reads.begin(org.ID, key, 1, time.Now())
	if err != nil {
		return err
	}
	p.x.report(p.reads.state(org.ID, key, time.Now()))
	pool := p.guard.Passthrough.Pool(org, p.note)
	if pool == "" {
		return nil
	}
	// The request has no user, because nothing else of its caller waits for it.
	p.grant, err = p.guard.Grants.Take(ctx, org, quota.Request{Pool: pool, ID: p.x.id, Org: org.ID}, nil)
	if err != nil {
		p.free()
		return guard.QuotaError(err)
	}
	return nil
}

// Permit implements guard.Quota.
func (p *paced) Permit() error { return p.grant.Permit() }

// Give implements guard.Quota.
func (p *paced) Give(ctx context.Context, _ *guard.Call) {
	if p.grant != nil {
		p.guard.Grants.Give(ctx, p.grant, p.unused)
		p.grant = nil
	}
	p.free()
}
