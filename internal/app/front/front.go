// Package front is what a process serves over HTTP: callers, the administrators' API and
// the console. It is separate from package app so that the worker program does not link
// them.
package front

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/checks"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/console"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/proxy"
	"github.com/llmguard/llmguard/queue"
)

// New builds the front of a process. It is an app.NewFront.
func New(p *app.Parts) (*app.Front, error) {
	api := newAdmin(p)
	pages, err := newConsole(p, api)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	f := &app.Front{Operators: func(mux *http.ServeMux) {
		mux.Handle("/admin/", api)
		mux.Handle(console.Path, pages)
	}}
	if p.Roles&app.Proxy != 0 {
		s := proxy.New(proxyOptions(p))
		f.Callers = &app.Callers{
			Handler: s, SetDirectory: s.SetDirectory, Run: s.Run, ObeyStops: s.ObeyStops, Drain: s.Drain,
			WaitSockets: s.WaitSockets,
		}
	}
	return f, nil
}

func proxyOptions(p *app.Parts) proxy.Options {
	c := p.Config
	return proxy.Options{
		Guard: p.Guard, Queue: p.Queue, Idempotency: p.Idempotency, Directory: p.Directory, Webhooks: p.Webhooks,
		Spool: p.Spool, Raises: p.Identities.Store,
		Files: p.Files, Batches: p.Batches, Failures: p.Failures, Missed: p.Identities.Missed, Used: p.Identities.Store.Used,
		TrustedProxies: c.TrustedProxies, CORSOrigins: c.CORSOrigins, Scan: app.ScanLimits(c),
		MaxBody: int64(c.Requests.MaxBody), MaxFile: int64(c.Files.MaxFile),
		ReadBody: c.Timeouts.ReadBody, Write: c.Timeouts.Write,
		HoldFor: c.Queue.Hold, KeepAlive: c.Queue.KeepAlive, KeepAnswer: c.Queue.ResultTTL,
		Streams: c.Connections.Streams,
		Log:     p.Log, Metrics: p.Metrics, Tracer: p.Tracer,
	}
}

func newAdmin(p *app.Parts) *admin.Server {
	o := adminOptions(p.Identities, p.Budget, p.Redis, p.Log)
	o.Failures = p.Failures
	o.Queue, o.Batches = func(context.Context) (*queue.Queue, error) { return p.Queue, nil }, p.Batches
	if p.Webhooks != nil {
		o.Webhooks = func() (*webhook.Sender, error) { return p.Webhooks, nil }
	}
	o.Reload = p.Reload
	return admin.New(o)
}

func adminOptions(ids *app.Identities, books *budget.Store, rdb redisconn.DB, log *slog.Logger) admin.Options {
	return admin.Options{
		Seal: ids.Ring, Tenants: ids.Store, Budget: books, Policy: ids.Policy,
		File:      func() admin.FileSettings { return fileSettings(ids.File()) },
		Effective: func() settings.Set { return ids.Effective().Tenants() },
		NewOrg: func(id string) settings.Org {
			return ids.File().NewOrg(id)
		}, NewUser: config.NewUser, NewLimit: config.NewLimit, Patch: config.Patch,
		Defaults: ids.Defaults, PlanLimits: ids.PlanLimits,
		Check: ids.CheckOrg, Applied: ids.Update, Log: log,
		Merge: ids.MergeOrg, Simulate: func(orgs []settings.Org) (simulate.Policy, error) {
			cfg := *ids.Effective()
			cfg.Orgs = orgs
			return app.Policy(&cfg, 1)
		},
		LimitsOf: func(call ledger.Call) ([]budget.Limit, error) { return app.LimitsOf(ids.Effective(), call) },
		Names: func(ctx context.Context, org, prefix string) ([]string, error) {
			return orgdata.NamesOf(ctx, rdb, org, prefix)
		},
		Files:       files.New(rdb, nil, files.Options{Log: log}),
		Ownership:   ownership.New(rdb, nil, log),
		Memory:      capacity.New(rdb, nil, capacity.Options{MemoryShare: 100, OrgShare: 100}, nil),
		Calibration: calibration.New(rdb, calibration.Options{}).List,
		Purge:       func(ctx context.Context, org string) (*orgdata.Purge, func()) { return openPurge(ctx, ids, rdb, org) },
	}
}

// fileSettings returns the parts of a configuration file that the administrators' API
// needs.
func fileSettings(c *config.Config) admin.FileSettings {
	out := admin.FileSettings{
		Place: c.Place,
		Set:   c.Tenants(), Hash: hex.EncodeToString(c.Sum[:]), Admins: map[string]tenants.Admin{},
		ResultTTL: c.Queue.ResultTTL,
	}
	for i := range c.Providers {
		out.Providers = append(out.Providers, c.Providers[i].ID)
	}
	for _, k := range c.Admin.Keys {
		out.Admins[k.ID] = tenants.Admin{Hash: k.Hash, ReadOnly: k.ReadOnly, Disabled: k.Disabled, Expires: k.Expires}
	}
	for _, p := range c.Auth.Peppers {
		out.Peppers = append(out.Peppers, keys.Pepper{ID: p.ID, Secret: p.Secret.Reveal()})
	}
	return out
}

// openPurge opens everything stored for an org.
func openPurge(
	ctx context.Context, ids *app.Identities, rdb redisconn.DB, org string,
) (*orgdata.Purge, func()) {
	p := &orgdata.Purge{Redis: rdb, Tenants: ids.Store, Org: org, Blobs: app.Blobs(ctx, ids.File(), rdb)}
	return p, func() {
		if p.Blobs != nil {
			p.Blobs.Close()
		}
	}
}

func newConsole(p *app.Parts, api *admin.Server) (*console.Console, error) {
	return console.New(console.Options{
		API: api, Tenants: func() settings.Set {
			return p.Identities.Effective().Tenants()
		}, Policy: p.Guard.Policy, Budget: p.Budget,
		Queue: p.Queue, Pools: p.Queue.Pools, Batches: p.Batches, TrustedProxies: p.Config.TrustedProxies, Redis: p.Redis,
		Log:      p.Log,
		Simulate: func() (simulate.Policy, error) { return app.Policy(p.Identities.Effective(), 1) },
		Stopped:  func(ctx context.Context) []string { return stopped(ctx, p) },
		Snapshot: p.Identities.Store.Snapshot,
		Findings: func(ctx context.Context) []diagnose.Finding { return checks.State(ctx, p) },
	})
}

// stopped describes what spending is stopped.
func stopped(ctx context.Context, p *app.Parts) (out []string) {
	for _, f := range checks.Stops(ctx, p) {
		out = append(out, f.What+". "+f.Fix)
	}
	return out
}

// Admin returns the administrators' API of a configuration, for commands on this machine.
// For batches it supports what needs no files.
func Admin(ctx context.Context, cfg *config.Config, rdb redisconn.DB,
	log *slog.Logger,
) (*admin.Server, error) {
	ids, err := app.LoadIdentities(ctx, cfg, rdb, log)
	if err != nil {
		return nil, err
	}
	store := budget.New(rdb, budget.Options{
		LedgerLength: app.LedgerLength(cfg.Ledger), SumLabels: app.SummedLabels(cfg), Spread: app.SpreadOf(ids.Policy),
	})
	o := adminOptions(ids, store, rdb, log)
	o.Batches = batch.NewStore(rdb, o.Files, log)
	o.Webhooks = func() (*webhook.Sender, error) { return app.Webhooks(ids.Effective(), rdb, log) }
	o.Refresh = ids.Refresh
	var lazy lazyQueue
	o.Queue = func(ctx context.Context) (*queue.Queue, error) {
		return lazy.open(func() (*queue.Queue, error) {
			q, _, err := app.Queue(ctx, ids.Effective(), rdb, log)
			return q, err
		})
	}
	return admin.New(o), nil
}

// lazyQueue is a queue that is opened on first use.
type lazyQueue struct {
	mu sync.Mutex
	q  *queue.Queue
}

func (o *lazyQueue) open(open func() (*queue.Queue, error)) (_ *queue.Queue, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.q == nil {
		o.q, err = open()
	}
	return o.q, err
}
