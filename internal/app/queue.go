package app

import (
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/queue"
)

// Queue returns the queue of a configuration for looking at it and for commands
// by hand, and its pools in the order of the file. It is not Run.
func Queue(cfg *config.Config, rdb redis.UniversalClient, log *slog.Logger) (*queue.Queue, []queue.Pool, error) {
	set, err := convert(cfg)
	if err != nil {
		return nil, nil, err
	}
	o := queueOptions(cfg, set)
	o.Logger = log
	q, err := queue.New(rdb, set.pools, o)
	return q, set.pools, err
}

// queueOptions are the configured bounds of the queue.
func queueOptions(cfg *config.Config, set *settings) queue.Options {
	c := cfg.Queue
	return queue.Options{
		Lease: c.Lease, Weights: set.weights, Seal: set.seal,
		LocalShare: int(cfg.Store.LocalShare), OrgShare: c.OrgShare, FlowShare: c.UserShare, MemoryShare: c.MemoryShare,
		Shares:      queue.Shares{Interactive: c.Shares.Interactive, Async: c.Shares.Async, Batch: c.Shares.Batch},
		MaxAttempts: c.MaxAttempts, DeadLetters: c.DeadLetters, DeadTTL: c.DeadTTL,
	}
}
