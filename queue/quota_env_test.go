package queue

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/quota"
)

var (
	takeScript    = lua.Load("take")
	giveScript    = lua.Load("give")
	observeScript = lua.Load("observe")
)

// Take takes quota for a live call of a flow.
func (e *env) Take(ctx context.Context, pool, id string, f Flow, tokens int64) (*quota.Grant, error) {
	return e.Quota().Take(ctx, quota.Request{Pool: pool, ID: id, Org: f.Org, User: f.User, Tokens: tokens})
}

func (e *env) Give(ctx context.Context, g *quota.Grant, unused bool) error {
	return e.Quota().Give(ctx, g, unused)
}

func (e *env) Block(ctx context.Context, pool string, d time.Duration) error {
	return e.Quota().Block(ctx, pool, d)
}

func (e *env) Observe(ctx context.Context, pool string, h quota.Head) (time.Duration, error) {
	return e.Quota().Observe(ctx, pool, h)
}

func (e *env) TakeShare(pool string, tokens int64) (*quota.Grant, error) {
	return e.Quota().TakeShare(pool, tokens)
}

// add adds a pool with bounds of its own.
func (e *env) add(p *pool) {
	e.settings.pools()[p.ID], e.settings.codes()[p.code] = p, p
	e.settings.configureQuota()
}
