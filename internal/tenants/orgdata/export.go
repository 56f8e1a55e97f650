package orgdata

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// exportSchema is the version of the export format. It is incremented when programs for the
// previous version would misread the new one.
const exportSchema = 1

// ExportLine is one line of an export.
type ExportLine struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// ErrNoBatches means that the org has batches but there is no store to read them from.
var ErrNoBatches = errors.New("orgdata: batches cannot be read here")

// Export writes all data of an org, without secrets and contents.
type Export struct {
	Org     string
	Budget  *budget.Store
	Tenants *tenants.Store
	Files   *files.Store
	Batches *batch.Store // nil if there are none
	Queue   func() (*queue.Queue, error)
	// Names lists what follows prefix in the names of the org's Redis keys.
	Names func(ctx context.Context, org, prefix string) ([]string, error)
	// Identities writes the org, its users, keys and limits in the admin API's format; Job
	// converts a job to it.
	Identities func(line func(kind string, data any) error) error
	Job        func(*queue.Job) any

	lines int64
	write func(ExportLine) error
}

// Write calls write for each line. The last one has type end.
func (x *Export) Write(ctx context.Context, write func(ExportLine) error) error {
	x.lines, x.write = 0, write
	if err := x.line("header", map[string]any{"schema": exportSchema, "org": x.Org, "at": time.Now().UTC()}); err != nil {
		return err
	}
	if err := x.Identities(x.line); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{x.money, x.refusals, x.jobs, x.batches, x.files, x.audit} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return x.line("end", map[string]int64{"lines": x.lines + 1})
}

func (x *Export) line(kind string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	x.lines++
	return x.write(ExportLine{kind, text})
}

// sumRecord is a daily sum; amounts are in nano-USD.
type sumRecord struct {
	Day           string       `json:"day"`
	User          string       `json:"user"`
	Key           string       `json:"key"`
	Provider      string       `json:"provider"`
	Endpoint      string       `json:"endpoint"`
	Model         string       `json:"model"`
	Cost          pricing.Nano `json:"cost_nano"`
	Calls         int64        `json:"calls"`
	Input         int64        `json:"input_tokens"`
	Cached        int64        `json:"cached_input_tokens"`
	Written       int64        `json:"cache_write_tokens"`
	Output        int64        `json:"output_tokens"`
	EstimatedNano pricing.Nano `json:"estimated_nano"`
	OverrunNano   pricing.Nano `json:"overrun_nano"`
	AdjustedNano  pricing.Nano `json:"adjusted_nano"`
	Costs         ledger.Costs `json:"costs_nano"`
}

func (x *Export) money(ctx context.Context) error {
	var none time.Time
	books := x.Budget
	if err := books.Ledger.Entries(ctx, x.Org, none, none, func(e ledger.Entry) error {
		return x.line("ledger", e)
	}); err != nil {
		return err
	}
	err := x.days(ctx, "sums:", func(day time.Time) error {
		list, err := books.Ledger.Rollups(ctx, x.Org, day, day.Add(time.Hour))
		return lines(x, list, err, "sum", func(r ledger.Rollup) any {
			return sumRecord{
				r.Begin.Format(time.DateOnly), r.User, r.Key, r.Provider, r.Endpoint, r.Model, r.Cost, r.Calls, r.Input, r.Cached,
				r.Written, r.Output, r.Estimated, r.Overrun, r.Adjusted, ledger.Costs(r.Split),
			}
		})
	})
	if err != nil {
		return err
	}
	return books.Ledger.Audit(ctx, x.Org, none, none, func(r ledger.AuditRecord) error { return x.line("correction", r) })
}

// days calls fn for the days that follow prefix in the names of the org's keys.
func (x *Export) days(ctx context.Context, prefix string, fn func(day time.Time) error) error {
	return x.each(ctx, prefix, func(text string) error {
		day, err := time.Parse("20060102", text)
		if err != nil {
			return err
		}
		return fn(day)
	})
}

// each calls fn for what follows prefix in the names of the org's keys.
func (x *Export) each(ctx context.Context, prefix string, fn func(text string) error) error {
	all, err := x.Names(ctx, x.Org, prefix)
	for i := 0; i < len(all) && err == nil; i++ {
		err = fn(all[i])
	}
	return err
}

// lines writes a line for each element of a list, which has been read with err.
func lines[T any](x *Export, list []T, err error, kind string, record func(T) any) error {
	for i := 0; i < len(list) && err == nil; i++ {
		err = x.line(kind, record(list[i]))
	}
	return err
}

// refusalRecord counts the calls of a key that were refused or waited for a cause.
type refusalRecord struct {
	Begin   time.Time `json:"begin_at"`
	Hour    bool      `json:"hour"` // of a UTC day if false
	User    string    `json:"user"`
	Key     string    `json:"key"`
	Cause   string    `json:"cause"`
	Refused int64     `json:"refused"`
	Waited  int64     `json:"waited"`
}

// refusals writes the counts and the recorded calls, without what is known of spend caps that orgs share.
func (x *Export) refusals(ctx context.Context) error {
	books := x.Budget.Refusals
	err := x.days(ctx, "refusals:", func(day time.Time) error {
		list, err := books.List(ctx, x.Org, budget.RefusalFilter{From: day, To: day.Add(24 * time.Hour)})
		return lines(x, list, err, "refusal", func(r budget.Refused) any {
			return refusalRecord{r.Begin, r.Hour, r.User, r.Key, r.Cause.Public(), r.Refused, r.Waited}
		})
	})
	if err != nil {
		return err
	}
	calls, err := books.Calls(ctx, x.Org, budget.RefusalFilter{To: time.Now().Add(time.Hour)}, math.MaxInt)
	return lines(x, calls, err, "refused_call", func(c budget.RefusedCall) any {
		if c.Cause.Kind() == budget.CauseCap {
			c.Cause, c.Metric, c.Needed, c.Left = budget.Cause(c.Cause.Public()), "", 0, 0
		}
		return c
	})
}

// jobs writes the jobs, except the jobs of batches, which are in the batches' files.
func (x *Export) jobs(ctx context.Context) error {
	q, err := x.Queue()
	if err != nil {
		return err
	}
	for after := ""; ; {
		page, err := q.List(ctx, x.Org, queue.Filter{}, after, 1000)
		err = lines(x, page.Jobs, err, "job", x.Job)
		if err != nil || !page.More {
			return err
		}
		after = page.Next
	}
}

// batchRecord is a batch without its lines; the cost is in nano-USD.
type batchRecord struct {
	ID        string            `json:"id"`
	User      string            `json:"user"`
	Key       string            `json:"key"`
	Endpoint  string            `json:"endpoint"`
	Model     string            `json:"model"`
	Status    batch.Status      `json:"status"`
	Input     string            `json:"input_file_id"`
	Output    string            `json:"output_file_id,omitempty"`
	Errors    string            `json:"error_file_id,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Created   time.Time         `json:"created_at"`
	Ended     *time.Time        `json:"ended_at"`
	Total     int64             `json:"total"`
	Succeeded int64             `json:"succeeded"`
	Failed    int64             `json:"failed"`
	Charged   int64             `json:"charged_nano"`
}

func (x *Export) batches(ctx context.Context) error {
	return x.each(ctx, "batches:", func(user string) error {
		if x.Batches == nil {
			return ErrNoBatches
		}
		for after := ""; ; {
			page, more, err := x.Batches.List(ctx, x.Org, user, after, 100)
			err = lines(x, page, err, "batch", func(b *batch.Batch) any {
				after = b.ID
				succeeded, unsuccessful := b.Done()
				return batchRecord{
					b.ID, b.User, b.Key, string(b.Endpoint), b.Model, b.Status, b.Input, b.Output, b.Errors, b.Metadata,
					b.Created.UTC(), moment(b.Ended()), b.Total, succeeded, unsuccessful, b.Charged,
				}
			})
			if err != nil || !more || len(page) == 0 {
				return err
			}
		}
	})
}

// fileRecord is a file without its content.
type fileRecord struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Name    string    `json:"name"`
	Purpose string    `json:"purpose"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created_at"`
	Expires time.Time `json:"expires_at"`
}

func (x *Export) files(ctx context.Context) error {
	return x.each(ctx, "files:", func(user string) error {
		for after := ""; ; {
			page, more, err := x.Files.List(ctx, files.Owner{Org: x.Org, User: user},
				files.Filter{After: after, Limit: 500, Oldest: true})
			err = lines(x, page, err, "file", func(f *files.File) any {
				after = f.ID
				return fileRecord{f.ID, f.User, f.Name, f.Purpose, f.Bytes, f.Created.UTC(), f.Expires.UTC()}
			})
			if err != nil || !more {
				return err
			}
		}
	})
}

func (x *Export) audit(ctx context.Context) error {
	f := tenants.AuditFilter{Org: x.Org}
	for {
		entries, more, err := x.Tenants.Audit(ctx, f, 1000)
		err = lines(x, entries, err, "audit", func(e tenants.AuditEntry) any {
			f.After = e.ID
			return e
		})
		if err != nil || !more || len(entries) == 0 {
			return err
		}
	}
}

// moment returns a time in UTC, or nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
