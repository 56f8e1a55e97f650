package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

// agreeTime bounds the check that the blob store can be written and read.
const agreeTime = 20 * time.Second

// openFiles opens the file store, if one is configured, and makes sure that all processes
// have the same. Its contents are sealed with the ring.
func (a *App) openFiles(ring *seal.Ring) error {
	c := a.cfg
	if c.Files.Store == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), agreeTime) //nolint:forbidigo // New has none
	defer cancel()
	var err error
	a.blobs, err = blob.Open(context.Background(), c.Files.Store) //nolint:forbidigo // the store outlives New
	if err != nil {
		return err
	}
	a.blobs.Seal(ring)
	a.files = files.New(a.rdb, a.blobs, files.Options{
		TTL: c.Files.TTL, OrgBytes: int64(c.Files.MaxOrgBytes), UserBytes: int64(c.Files.MaxUserBytes),
		OrgFiles: int64(c.Files.MaxOrgFiles), UserFiles: int64(c.Files.MaxUserFiles), Memory: a.memory, Log: a.log,
	})
	return a.files.Agree(ctx)
}

// openBatches enables batches if there is a file store.
func (a *App) openBatches(roles Role) {
	if a.files == nil {
		return
	}
	c := a.cfg
	a.batches = batch.NewStore(a.rdb, a.files, a.log)
	a.batches.Bound(batch.Bounds{
		Lines: c.Batches.MaxLines, Open: c.Batches.MaxOpen, UserOpen: c.Batches.MaxUserOpen, Kept: c.Batches.MaxEnded,
		Memory: a.memory,
	})
	if roles&Worker != 0 {
		a.batchRunner = batch.NewRunner(a.batches, batch.Options{
			Guard: a.guard, Queue: a.queue, Scan: ScanLimits(c), MaxLine: int(c.Requests.MaxBody),
			InQueue: c.Batches.InQueue, RefuseOverBudget: c.Batches.OverBudget == "refuse",
			Lease: c.Queue.Lease / 2, Poll: c.Batches.Poll, Doubt: c.Batches.Doubt, Ended: a.batchEnded, Log: a.log,
			Metrics: a.registry,
		})
	}
}

// newSpool returns the memory and disk space for bodies and answers.
func newSpool(c *config.Config, log *slog.Logger, metrics prometheus.Registerer) *spool.Store {
	o := spool.Options{Memory: int64(c.Memory.Bodies), Disk: int64(c.Memory.Spool), Log: log, Metrics: metrics}
	if o.Memory == 0 {
		o.Memory = max(spool.DefaultMemory(), 2*int64(c.Requests.MaxBody))
	}
	o.Disk = max(o.Disk, 2*int64(c.Requests.MaxBody))
	if c.Memory.Spool == 0 {
		o.Disk = -1
	}
	return spool.New(o)
}
