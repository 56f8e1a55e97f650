package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/tokenizer"
)

// ErrNoStore means that the configuration has no Redis.
var ErrNoStore = errors.New("no Redis configured; it stores limits, jobs and the ledger. Set redis.addresses or redis.url, or use `llmguard dev` to try llmguard without Redis")

// RunFile loads a configuration and runs the roles until ctx ends, as `llmguard serve` and
// `worker` do.
func RunFile(ctx context.Context, path string, roles Role, front NewFront, stderr io.Writer) error {
	hup, stop := hangups()
	defer stop()
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	if !cfg.Redis.Configured() {
		return ErrNoStore
	}
	log, level, flush := Logger(cfg.Log, stderr)
	defer flush()
	if limit := spool.RespectCgroup(); limit > 0 {
		log.Info("memory limit set from the cgroup", "bytes", limit)
	}
	rdb, err := Connect(cfg.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	if err := CheckRedis(ctx, rdb, log); err != nil {
		return err
	}
	if cfg.Store.JournalDir == "" {
		log.Warn("store.journal_dir is not set, settlements that redis does not accept are kept in memory only")
	}
	a, err := New(Options{
		Config: cfg, Redis: rdb, Roles: roles, Front: front, Log: log, Level: level,
		Load: func() (*config.Config, error) { return config.Load(path) },
	})
	if err != nil {
		return err
	}
	if url := a.URL(); url != "" {
		log.Info("serving calls", "url", url+"/v1")
	}
	log.Info("serving health and metrics", "url", a.AdminURL())
	go a.reloadOnHangup(ctx, hup)
	return a.Run(ctx)
}

// Check validates a configuration file as far as possible without opening a connection, and
// returns the resulting policy, which must not be used for calls. load is config.Load or config.LoadOperator.
func Check(path string, load func(path string) (*config.Config, error)) (*config.Config, *guard.Policy, error) {
	cfg, err := load(path)
	if err != nil {
		return nil, nil, err
	}
	set, err := convert(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return cfg, set.policy, nil
}

// loadTables loads the token tables of today's models, so that the first calls need not wait for
// them. Those of older models load at their first call.
func loadTables() error { return tokenizer.Warm(tokenizer.O200k) }

// after runs something once the tables are loaded: a job claimed earlier would hold its
// quota and slot while they load.
func after(ctx context.Context, warm <-chan struct{}, run func(context.Context) error) error {
	select {
	case <-warm:
		return quiet(run(ctx))
	case <-ctx.Done():
		return nil
	}
}
