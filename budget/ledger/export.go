package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// ExporterOptions tune an Exporter.
type ExporterOptions struct {
	// Dir gets a directory per org with one file per UTC day, <org>/2026-11-20.jsonl, and one more
	// for each part of an org that is spread, <org>/2026-11-20.23.jsonl. All processes that export an
	// org must share Dir.
	Dir string
	// Orgs returns the orgs to export; it is called every round.
	Orgs func(context.Context) []string
	// Keep is about how many entries stay in Redis once they are exported. 0: the ledger is trimmed
	// by Options.LedgerLength only.
	Keep int64
	// Interval is the time between rounds (default 10 s). Lease is how long other processes wait
	// for one that has died (default 1 min).
	Interval, Lease time.Duration
}

// Exporter appends ledger entries to files before they are trimmed from Redis, each exactly once. A
// line is an [Entry] as JSON and begins with its LedgerID.
//
// The files are authoritative. Redis also stores how far they are written, but only afterwards. A
// process that takes over reads the end of the file for lines that Redis does not know of, and cuts
// off an unfinished line. One process at a time exports a part of an org: it holds a lease in Redis
// and a lock on a file in the org's directory. An Exporter must not be used by more than one goroutine.
type Exporter struct {
	ledger *Ledger
	o      ExporterOptions
	owner  string
	waits  map[string]time.Time // by place: until when another process has it

	// died simulates a crash in tests.
	died func(where string) error
}

// NewExporter returns an Exporter of the ledgers; Run starts it.
func NewExporter(l *Ledger, o ExporterOptions) (*Exporter, error) {
	if o.Dir == "" || o.Orgs == nil {
		return nil, errors.New("ledger: an exporter needs a directory and orgs")
	}
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.Lease <= 0 {
		o.Lease = time.Minute
	}
	return &Exporter{
		ledger: l, o: o, owner: rand.Text(), waits: map[string]time.Time{},
		died: func(string) error { return nil },
	}, nil
}

// Run exports until ctx ends, then releases its orgs. Failures are logged and retried.
func (x *Exporter) Run(ctx context.Context) error {
	tick := time.NewTicker(x.o.Interval)
	defer tick.Stop()
	for {
		for _, org := range x.o.Orgs(ctx) {
			if _, err := x.Export(ctx, org); err != nil && ctx.Err() == nil {
				x.ledger.metrics.exportErrors.Inc()
				x.ledger.o.Log.Error("ledger not exported, will retry", "org", org, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			x.release(context.WithoutCancel(ctx))
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// release releases all orgs, so that another process need not wait for the leases to expire.
func (x *Exporter) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, org := range x.o.Orgs(ctx) {
		_ = x.ledger.each(ctx, org, func(place string) error {
			if x.elsewhere(place) {
				return nil
			}
			_, _, err := x.own(ctx, place, 0, "", 0)
			return err
		})
	}
}

func (x *Exporter) elsewhere(place string) bool { return time.Now().Before(x.waits[place]) }

// errNotOurs ends a round because another process exports the org.
var errNotOurs = errors.New("another process exports the org")

// Export writes the org's new entries and returns how many; 0 also when another process exports the
// org. Run calls it regularly.
func (x *Exporter) Export(ctx context.Context, org string) (int, error) {
	written := 0
	err := x.ledger.each(ctx, org, func(place string) error {
		if x.elsewhere(place) {
			return nil
		}
		n, err := x.export(ctx, place)
		written += n
		if errors.Is(err, errNotOurs) {
			x.waits[place] = time.Now().Add(x.o.Lease / 2)
			return nil
		}
		return err
	})
	return written, err
}

// export is Export of one place.
func (x *Exporter) export(ctx context.Context, place string) (int, error) {
	position, mine, err := x.own(ctx, place, x.o.Lease, "", 0)
	if err != nil {
		return 0, err
	}
	if !mine {
		return 0, errNotOurs
	}
	var files *exportFiles
	written := 0
	for {
		list, err := x.after(ctx, place, position)
		if err != nil || len(list) == 0 {
			return written, err
		}
		if files == nil {
			files, err = openExport(x.o.Dir, place)
			if err != nil {
				return written, err
			}
			defer files.close()
		}
		n, err := files.append(list, x.died)
		written += n
		x.ledger.metrics.exported.Add(float64(n))
		if err != nil {
			return written, err
		}
		if err := x.died("written"); err != nil {
			return written, err
		}
		position = streamID(list[len(list)-1].LedgerID)
		done, keep := len(list) < streamPage, int64(0)
		if done {
			keep = x.o.Keep
		}
		_, mine, err = x.own(ctx, place, x.o.Lease, position, keep)
		if err != nil {
			return written, err
		}
		if !mine {
			return written, errNotOurs
		}
		if done {
			return written, nil
		}
	}
}

// after reads a page of entries after a position. The entry at the position itself must still be
// there, because trimming removes the oldest first.
func (x *Exporter) after(ctx context.Context, place, position string) ([]Entry, error) {
	list, err := x.ledger.o.Redis.XRangeN(ctx, Key(place, "ledger"), position, "+", streamPage+1).Result()
	if err != nil {
		return nil, x.ledger.o.Fault("export ledger", err)
	}
	switch {
	case len(list) > 0 && list[0].ID == position:
		list = list[1:]
	case position != noPosition && len(list) > 0:
		x.ledger.metrics.exportGaps.Inc()
		x.ledger.o.Log.Error("ledger entries may have been trimmed before export, raise ledger.max_entries",
			"org", place, "after", position, "before", list[0].ID)
	}
	list = list[:min(len(list), streamPage)]
	out := make([]Entry, len(list))
	for i, m := range list {
		out[i], err = entryOf(place, m)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// noPosition is the position before anything was exported.
const noPosition = "0-0"

// own takes or renews the lease of a place. If position is given, it is recorded; if keep is positive,
// exported entries are trimmed down to about that many.
func (x *Exporter) own(
	ctx context.Context, place string, lease time.Duration, position string, keep int64,
) (at string, mine bool, err error) {
	return x.ledger.own(ctx, []string{Key(place, "export"), Key(place, "ledger")},
		x.owner, lease.Microseconds(), position, (2 * x.ledger.o.Life).Milliseconds(), keep)
}

// own runs lua/export.lua.
func (l *Ledger) own(ctx context.Context, keys []string, args ...any) (at string, mine bool, err error) {
	reply, err := l.o.Export(ctx, keys, args...)
	if err != nil {
		return "", false, err
	}
	verdict, at, ok := strings.Cut(reply, ",")
	if !ok || verdict != "mine" && verdict != "busy" {
		return "", false, fmt.Errorf("ledger: export: reply %.80q is not understood", reply)
	}
	return at, verdict == "mine", nil
}

// ExportLease lets one process at a time write regular exports of an org's ledger.
type ExportLease struct {
	Org   string
	Owner string        // of the process
	For   time.Duration // how long the others wait if it dies; 0 releases it
	// Done is recorded as the position up to which exports are written; empty: unchanged. It must have
	// no comma.
	Done string
}

// Lease takes, renews or releases a lease, and returns the last position recorded; mine is false while
// another process has it.
func (l *Ledger) Lease(ctx context.Context, e ExportLease) (done string, mine bool, err error) {
	return l.own(ctx, []string{Key(e.Org, "export-focus"), Key(e.Org, "ledger")},
		e.Owner, e.For.Microseconds(), e.Done, (2 * l.o.Life).Milliseconds(), 0)
}

// Exported returns the LedgerID up to which the org's ledger is exported; empty if nothing was. Of
// an org that is spread, it is that of the part which is the furthest behind.
func (l *Ledger) Exported(ctx context.Context, org string) (least string, err error) {
	err = l.each(ctx, org, func(place string) error {
		position, err := l.o.Redis.HGet(ctx, Key(place, "export"), "position").Result()
		switch {
		case redisconn.IsNil(err) || position == noPosition:
			return nil
		case err != nil:
			return l.o.Fault("read export", err)
		case least == "" || earlier(position, least):
			least = position
		}
		return nil
	})
	return least, err
}
