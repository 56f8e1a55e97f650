package admin

import (
	"context"
	stdjson "encoding/json"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// exportSchema is the form of an export. It grows when a program that reads the present one
// would misread the next.
const exportSchema = 1

// exportLine is a line of an export.
type exportLine struct {
	Type string             `json:"type"`
	Data stdjson.RawMessage `json:"data"`
}

// export writes the lines of one org.
type export struct {
	*call
	org   string
	lines int64
	write func(any) error
}

// exportOrg streams everything that is kept of an org, without secrets and contents.
func (c *call) exportOrg() (any, error) {
	org := c.r.PathValue("org")
	if _, _, err := c.org(org); err != nil {
		return nil, err
	}
	return streamed(func(line func(any) error) error {
		x := &export{call: c, org: org, write: line}
		if err := x.line("header", map[string]any{"schema": exportSchema, "org": org, "at": time.Now().UTC()}); err != nil {
			return err
		}
		for _, part := range []func(context.Context) error{x.identities, x.money, x.queued, x.batches, x.files, x.audit} {
			if err := part(c.r.Context()); err != nil {
				return err
			}
		}
		return x.line("end", map[string]int64{"lines": x.lines + 1})
	}), nil
}

func (x *export) line(kind string, data any) error {
	text, err := stdjson.Marshal(data)
	if err != nil {
		return err
	}
	x.lines++
	return x.write(exportLine{kind, text})
}

// identities are as their own routes show them, without secrets.
func (x *export) identities(context.Context) error {
	org, err := x.getOrg()
	if err != nil {
		return err
	}
	if err := x.line("org", org); err != nil {
		return err
	}
	for _, of := range []struct {
		kind string
		list func() (any, error)
	}{
		{"user", x.listUsers},
		{"key", x.listKeys},
		{"limit", x.listLimits},
		{"override", x.listOverrides},
		{"credential", x.listCredentials},
	} {
		if err := x.each(of.kind, of.list); err != nil {
			return err
		}
	}
	return nil
}

// each writes what a list has.
func (x *export) each(kind string, list func() (any, error)) error {
	answer, err := list()
	if err != nil {
		return err
	}
	text, err := stdjson.Marshal(answer)
	if err != nil {
		return err
	}
	var page struct{ Data []stdjson.RawMessage }
	if err := stdjson.Unmarshal(text, &page); err != nil {
		return err
	}
	for _, one := range page.Data {
		if err := x.line(kind, one); err != nil {
			return err
		}
	}
	return nil
}

// sumRecord is a daily sum; amounts are nano-USD.
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
	Costs         budget.Costs `json:"costs_nano"`
}

func (x *export) money(ctx context.Context) error {
	var none time.Time
	books := x.o.Budget
	if err := books.Ledger.Entries(ctx, x.org, none, none, func(e budget.Entry) error { return x.line("ledger", e) }); err != nil {
		return err
	}
	days, err := x.o.Names(ctx, x.org, "sums:")
	if err != nil {
		return err
	}
	for _, text := range days {
		day, err := time.Parse("20060102", text)
		if err != nil {
			return err
		}
		list, err := books.Ledger.Rollups(ctx, x.org, day, day.Add(time.Hour))
		if err != nil {
			return err
		}
		for _, r := range list {
			s := sumRecord{
				r.Begin.Format(time.DateOnly), r.User, r.Key, r.Provider, r.Endpoint, r.Model, r.Cost, r.Calls, r.Input, r.Cached, r.Written,
				r.Output, r.Estimated, r.Overrun, r.Adjusted, budget.Costs(r.Split),
			}
			if err := x.line("sum", s); err != nil {
				return err
			}
		}
	}
	return books.Ledger.Audit(ctx, x.org, none, none, func(r budget.AuditRecord) error { return x.line("correction", r) })
}

// queued writes the jobs. Those of batches are in the batches' files.
func (x *export) queued(ctx context.Context) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	for after := ""; ; {
		page, err := q.List(ctx, x.org, queue.Filter{}, after, 1000)
		if err != nil {
			return err
		}
		for _, j := range page.Jobs {
			if err := x.line("job", JobLineOf(j)); err != nil {
				return err
			}
		}
		if after = page.Next; !page.More {
			return nil
		}
	}
}

// batchRecord is a batch without its lines; the cost is nano-USD.
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

func (x *export) batches(ctx context.Context) error {
	users, err := x.o.Names(ctx, x.org, "batches:")
	if err != nil {
		return err
	}
	if len(users) > 0 && x.o.Batches == nil {
		return noWork("batches")
	}
	for _, user := range users {
		if err := x.batchesOf(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

func (x *export) batchesOf(ctx context.Context, user string) error {
	for after := ""; ; {
		page, more, err := x.o.Batches.List(ctx, x.org, user, after, 100)
		if err != nil {
			return err
		}
		for _, b := range page {
			after = b.ID
			err := x.line("batch", batchRecord{
				b.ID, b.User, b.Key, string(b.Endpoint), b.Model, b.Status, b.Input, b.Output, b.Errors, b.Metadata, b.Created.UTC(),
				moment(b.Ended()), b.Total, b.Succeeded, b.Unsuccessful, b.Charged,
			})
			if err != nil {
				return err
			}
		}
		if !more || len(page) == 0 {
			return nil
		}
	}
}

// fileRecord is a file without its bytes.
type fileRecord struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Name    string    `json:"name"`
	Purpose string    `json:"purpose"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created_at"`
	Expires time.Time `json:"expires_at"`
}

func (x *export) files(ctx context.Context) error {
	users, err := x.o.Names(ctx, x.org, "files:")
	if err != nil {
		return err
	}
	for _, user := range users {
		if err := x.filesOf(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

func (x *export) filesOf(ctx context.Context, user string) error {
	for after := ""; ; {
		page, more, err := x.o.Files.List(ctx, files.Owner{Org: x.org, User: user}, files.Filter{After: after, Limit: 500, Oldest: true})
		if err != nil {
			return err
		}
		for _, f := range page {
			after = f.ID
			if err := x.line("file", fileRecord{f.ID, f.User, f.Name, f.Purpose, f.Bytes, f.Created.UTC(), f.Expires.UTC()}); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

func (x *export) audit(ctx context.Context) error {
	f := tenants.AuditFilter{Org: x.org}
	for {
		entries, more, err := x.o.Tenants.Audit(ctx, f, 1000)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := x.line("audit", e); err != nil {
				return err
			}
			f.After = e.ID
		}
		if !more || len(entries) == 0 {
			return nil
		}
	}
}
