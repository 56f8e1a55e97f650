package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/journal"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// openJournal opens the journal of this process, in memory if no directory is configured.
func openJournal(c config.Store, log *slog.Logger) (*journal.Journal, error) {
	j, err := journal.Open(c.JournalDir, journal.Options{MaxBytes: int64(c.JournalMax), Log: log})
	if err != nil {
		return nil, fmt.Errorf("store.journal_dir: %w", err)
	}
	return j, nil
}

// epochFile returns where the process records which data Redis had; empty if nowhere.
func epochFile(c config.Store) string {
	if c.JournalDir == "" {
		return ""
	}
	return filepath.Join(c.JournalDir, "store-epoch")
}

// settle ends what is still open when the process ends: in Redis if it answers, otherwise
// in the journal.
func (a *App) settle(ctx context.Context) {
	if err := a.guard.Close(ctx); err != nil {
		a.log.Error("some calls not settled, their holds expire and are charged in full", "err", err)
	}
	left, err := a.budget.Deferred.Replay(ctx)
	switch {
	case left == 0:
	case a.journal.Durable():
		a.log.Warn("settlements left in the journal, the next process with this directory writes them",
			"calls", left, "dir", a.cfg.Store.JournalDir, "err", err)
	default:
		a.log.Error("settlements lost because store.journal_dir is not set, their holds are charged in full",
			"calls", left, "err", err)
	}
}

// moneyScripts returns what runs the scripts of the budget, and its pipelines. With
// store.durability they return once a replica has what was written, which may take half of
// the deadline.
func moneyScripts(c config.Store, line *redisconn.Coalescer) (budget.Scripts, func() budget.Flight) {
	if c.Durability != "async" && c.Durability != "" {
		line = line.Acknowledged(c.Deadline/2, c.Durability == "waitaof1")
	}
	return line, func() budget.Flight { return line.Batch() }
}
