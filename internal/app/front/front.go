// Package front is what a process serves over HTTP: callers, the administrators' API and
// the console. It is apart from package app so that the program worker does not link them.
package front

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/admin"
	"github.com/llmguard/llmguard/batch"
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/console"
	"github.com/llmguard/llmguard/files"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/proxy"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/simulate"
	"github.com/llmguard/llmguard/webhook"
)

// New builds the front of a process. It is an app.NewFront.
func New(p *app.Parts) (*app.Front, error) {
	api, err := newAdmin(p)
	if err != nil {
		return nil, fmt.Errorf("admin API: %w", err)
	}
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
		f.Callers = &app.Callers{Handler: s, SetDirectory: s.SetDirectory, Run: s.Run, Drain: s.Drain}
	}
	return f, nil
}

func proxyOptions(p *app.Parts) proxy.Options {
	c := p.Config
	return proxy.Options{
		Guard: p.Guard, Queue: p.Queue, Rejoin: p.Rejoin, Directory: p.Directory, Webhooks: p.Webhooks, Spool: p.Spool,
		Files: p.Files, Batches: p.Batches, Failures: p.Failures, Missed: p.Identities.Missed, Used: p.Identities.Store.Used,
		TrustedProxies: c.TrustedProxies, Scan: app.ScanLimits(c),
		MaxBody: int64(c.Requests.MaxBody), MaxFile: int64(c.Files.MaxFile),
		ReadBody: c.Timeouts.ReadBody, Write: c.Timeouts.Write, StoreDeadline: c.Store.Deadline,
		HoldFor: c.Queue.Hold, KeepAlive: c.Queue.KeepAlive, KeepAnswer: c.Queue.ResultTTL,
		Streams: c.Connections.Streams,
		Log:     p.Log, Metrics: p.Metrics, Tracer: p.Tracer,
	}
}

func newAdmin(p *app.Parts) (*admin.Server, error) {
	o := adminOptions(p.Identities, p.Budget, p.Log)
	o.Failures = p.Failures
	o.Queue, o.Batches = func(context.Context) (*queue.Queue, error) { return p.Queue, nil }, p.Batches
	if p.Webhooks != nil {
		o.Webhooks = func() (*webhook.Sender, error) { return p.Webhooks, nil }
	}
	if p.Reload != nil {
		o.Reload = func(ctx context.Context) (*admin.Reloaded, error) {
			r, err := p.Reload(ctx)
			if err != nil {
				return nil, err
			}
			return &admin.Reloaded{Hash: r.Hash, Changed: r.Changed, NeedsRestart: r.NeedsRestart}, nil
		}
	}
	return admin.New(o)
}

func adminOptions(ids *app.Identities, books *budget.Store, log *slog.Logger) admin.Options {
	return admin.Options{
		Seal: ids.Ring, Identity: ids.Store, Budget: books, File: ids.File, Effective: ids.Effective, Policy: ids.Policy,
		Defaults: ids.Defaults,
		Check:    ids.CheckOrg, Applied: ids.Update, Log: log,
		Merge: ids.MergeOrg, Simulate: func(cfg *config.Config) (simulate.Policy, error) { return app.Policy(cfg, 1) },
		LimitsOf: func(call budget.Call) ([]budget.Limit, error) { return app.LimitsOf(ids.Effective(), call) },
	}
}

func newConsole(p *app.Parts, api *admin.Server) (*console.Console, error) {
	return console.New(console.Options{
		API: api, Config: p.Identities.Effective, Policy: p.Guard.Policy, Budget: p.Budget,
		Queue: p.Queue, Pools: p.Queue.Pools, Batches: p.Batches, TrustedProxies: p.Config.TrustedProxies, Redis: p.Redis, Log: p.Log,
		Simulate: func() (simulate.Policy, error) { return app.Policy(p.Identities.Effective(), 1) },
		Webhooks: p.Webhooks, Findings: func(ctx context.Context) []console.Fault { return findings(ctx, p) },
	})
}

// findings is what is wrong with the store and the prices of a process.
func findings(ctx context.Context, p *app.Parts) (out []console.Fault) {
	found, facts := diagnose.Store(ctx, p.Redis)
	if facts != nil {
		found = append(found, diagnose.StoreMore(ctx, p.Redis, facts, p.Config.Store.Deadline)...)
	}
	for _, f := range found {
		if f.Level != diagnose.OK {
			out = append(out, console.Fault{Severe: f.Level == diagnose.Error, What: f.What, Fix: f.Fix})
		}
	}
	prices := p.Guard.Policy().Catalogue
	if age := prices.Age(time.Now()); age > diagnose.OldPrices {
		out = append(out, console.Fault{
			What: fmt.Sprintf("prices were last checked %d days ago, on %s", int(age/(24*time.Hour)), prices.AsOf().Format(time.DateOnly)),
			Fix:  "Run llmguard prices verify, then update llmguard or set prices in the configuration.",
		})
	}
	return out
}

// Admin returns the administrators' API of a configuration, for commands on this
// machine. It is not kept up to date. Of batches it can do what needs no files.
func Admin(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient, log *slog.Logger) (*admin.Server, error) {
	ids, err := app.LoadIdentities(ctx, cfg, rdb, log)
	if err != nil {
		return nil, err
	}
	o := adminOptions(ids, budget.New(rdb, budget.Options{LedgerLength: app.LedgerLength(cfg.Ledger)}), log)
	o.Batches = batch.NewStore(rdb, files.New(rdb, nil, files.Options{Logger: log}), log)
	o.Webhooks = func() (*webhook.Sender, error) { return app.Webhooks(ids.Effective(), rdb, log) }
	o.Queue = func(ctx context.Context) (*queue.Queue, error) {
		q, _, err := app.Queue(ctx, ids.Effective(), rdb, log)
		return q, err
	}
	return admin.New(o)
}
