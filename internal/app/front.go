package app

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/queue"
)

// NewFront builds a process's front from its parts. Package front has the only
// implementation; the worker program does not link it.
type NewFront func(*Parts) (*Front, error)

// Front is what a process serves in addition to health and metrics.
type Front struct {
	// Operators adds the administrators' API and the console to the admin listener.
	Operators func(*http.ServeMux)
	// Callers is nil without the Proxy role.
	Callers *Callers
}

// Callers serves callers.
type Callers struct {
	Handler http.Handler
	// SetDirectory replaces the known keys.
	SetDirectory func(*auth.Directory)
	// Run works in the background until ctx ends.
	Run func(context.Context) error
	// ObeyStops answers the waiting callers whose spending is stopped.
	ObeyStops func()
	// Drain answers the waiting callers because the process is shutting down.
	Drain func()
	// WaitSockets waits until no WebSocket is open. http.Server does not.
	WaitSockets func(context.Context) error
}

// Parts are what a Front is built from.
type Parts struct {
	Config      *config.Config
	Roles       Role
	Redis       redisconn.DB
	Directory   *auth.Directory
	Failures    *auth.FailureLimiter // of wrong keys
	Identities  *Identities
	Budget      *budget.Store
	Guard       *guard.Guard
	Queue       *queue.Queue
	Idempotency *idempotency.Store
	Files       *files.Store // nil without files.store
	Batches     *batch.Store // nil without files.store
	Webhooks    *webhook.Sender
	Spool       *spool.Store
	Tracer      *tracing.Tracer // nil if tracing is off
	Log         *slog.Logger
	Metrics     prometheus.Registerer
	// Reload reads the configuration file again; nil if there is none.
	Reload func(context.Context) (*Reloaded, error)
}

func (a *App) parts(o Options, set *settings) *Parts {
	p := &Parts{
		Config: a.cfg, Roles: o.Roles, Redis: a.rdb, Directory: set.directory, Failures: a.failures, Identities: a.ids,
		Budget: a.budget, Guard: a.guard,
		Queue: a.queue, Idempotency: a.idempotency, Files: a.files, Batches: a.batches, Webhooks: a.webhooks,
		Spool: a.spool, Tracer: a.tracer, Log: a.log, Metrics: a.registry,
	}
	if o.Load != nil {
		p.Reload = a.Reload
	}
	return p
}
