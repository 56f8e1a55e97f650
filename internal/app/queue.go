package app

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/queue"
)

// Queue returns the queue of a configuration for inspection and for commands, and its pools
// in the order of their ids. It does not run the queue. If the blob store shared by the
// other processes is not accessible, the queue has none.
func Queue(ctx context.Context, cfg *config.Config, rdb redisconn.DB,
	log *slog.Logger,
) (*queue.Queue, []queue.Pool, error) {
	set, err := convert(cfg)
	if err != nil {
		return nil, nil, err
	}
	o := queueOptions(cfg, set)
	o.Log, o.Blobs = log, Blobs(ctx, cfg, rdb)
	o.Memory = capacity.New(rdb, nil, memoryOptions(cfg), nil)
	if o.Blobs != nil {
		o.Blobs.Seal(set.seal)
	}
	q, err := queue.New(rdb, set.pools, o)
	if err != nil {
		return nil, nil, err
	}
	if err := q.RecallOwn(ctx); err != nil {
		return nil, nil, err
	}
	return q, q.Pools(), nil
}

// Blobs returns the blob store that all processes share; nil if it is not accessible from
// here. It never creates one.
func Blobs(ctx context.Context, cfg *config.Config, rdb redisconn.DB) *blob.Store {
	where := cfg.Files.Store
	if where == "" {
		return nil
	}
	if _, err := os.Stat(where); err != nil && !strings.Contains(where, "://") {
		return nil
	}
	store, err := blob.Open(ctx, where)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agreeTime)
	defer cancel()
	if !files.New(rdb, store, files.Options{}).Agreed(ctx) {
		_ = store.Close()
		return nil
	}
	return store
}

// memoryOptions returns the configured bounds of bodies and answers in Redis.
func memoryOptions(cfg *config.Config) capacity.Options {
	return capacity.Options{MemoryShare: cfg.Queue.MemoryShare, OrgShare: cfg.Queue.MemoryOrgShare}
}

// queueOptions returns the configured options of the queue.
func queueOptions(cfg *config.Config, set *settings) queue.Options {
	c := cfg.Queue
	return queue.Options{
		Lease: c.Lease, Weights: set.weights, Seal: set.seal,
		LocalShare: int(cfg.Store.LocalShare), OrgShare: c.OrgShare, FlowShare: c.UserShare,
		Shares:      queue.Shares{Interactive: c.Shares.Interactive, Async: c.Shares.Async, Batch: c.Shares.Batch},
		MaxAttempts: c.MaxAttempts, RetryFor: c.RetryFor, DeadLetters: c.DeadLetters, DeadTTL: c.DeadTTL,
		BlobAbove: int64(c.BlobAbove),
	}
}

func (a *App) queueOptions(set *settings, scripts redisconn.Scripter) queue.Options {
	o := queueOptions(a.cfg, set)
	o.Scripts, o.Log, o.Metrics, o.Blobs, o.Spool = scripts, a.log, a.registry, a.blobs, a.spool
	o.Memory, o.Files = a.memory, a.files
	o.Refused = func(c guard.RefusedCall) { a.guard.Refused(c) }
	return o
}

// jobLife returns how long the jobs of any pool can be read.
func jobLife(pools []queue.Pool) (most time.Duration) {
	for _, p := range pools {
		most = max(most, p.MaxAge+p.ResultTTL)
	}
	return most
}
