package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/admin"
	"github.com/llmguard/llmguard/batch"
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/files"
	"github.com/llmguard/llmguard/identity"
	"github.com/llmguard/llmguard/internal/orgdata"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// exportSchema is the form of `orgs export`. It grows when a program that reads
// the present one would misread the next.
const exportSchema = 1

func orgsExportCommand() *cobra.Command {
	var path, output string
	c := &cobra.Command{
		Use: "export ORG", Short: "Write everything that is kept of an org, as one stream of JSON lines", Args: cobra.ExactArgs(1),
		Long: "Every line is {\"type\": ..., \"data\": ...}: first a header with the schema's version, then the org as it is in force, its users,\n" +
			"keys, limits, overrides and credentials (never a secret or a hash), its ledger, daily sums and corrections, jobs, batches\n" +
			"and files without their contents, and what the audit says of it; at last a line \"end\" with how many lines there were.\n" +
			"A stream without it is not complete. Needs the configuration file, and works on its Redis itself.",
		Example: "  llmguard orgs export acme --out acme.jsonl\n  llmguard orgs export acme | jq -c 'select(.type == \"key\").data'",
		RunE: func(c *cobra.Command, args []string) error {
			return exportOrg(c.Context(), path, args[0], c.OutOrStdout())
		},
	}
	configFlag(c, &path)
	formatFlag(c, &output, "jsonl")
	return c
}

// intoFile writes a file that only its owner reads, all of it or nothing.
func intoFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is renamed when all went well
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(write(w), w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// orgExport writes the lines of one org.
type orgExport struct {
	enc   *json.Encoder
	lines int64
	org   string
	*ledgers
	jobs *office
}

func (x *orgExport) line(kind string, data any) error {
	x.lines++
	return x.enc.Encode(struct {
		Type string `json:"type"`
		Data any    `json:"data"`
	}{kind, data})
}

func exportOrg(ctx context.Context, path, org string, out io.Writer) error {
	w := bufio.NewWriterSize(out, 1<<16)
	f := usageFlags{adminFlags: adminFlags{path: path}, org: org}
	api, err := f.openLocal(ctx)
	if err != nil {
		return err
	}
	defer api.close()
	jobs, err := f.openOffice(ctx)
	if err != nil {
		return err
	}
	defer jobs.Close()
	x := &orgExport{enc: json.NewEncoder(w), org: org, ledgers: &ledgers{api, jobs.orgs}, jobs: jobs}
	x.enc.SetEscapeHTML(false)
	if err := x.line("header", map[string]any{"schema": exportSchema, "org": org, "at": time.Now().UTC()}); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{x.identities, x.money, x.queued, x.batchesAndFiles, x.audit} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if err := x.line("end", map[string]int64{"lines": x.lines + 1}); err != nil {
		return err
	}
	return w.Flush()
}

// identities are as the administrators' API shows them, which shows no secret.
func (x *orgExport) identities(ctx context.Context) error {
	var org json.RawMessage
	if err := x.ask(ctx, http.MethodGet, pathOf("orgs", x.org), nil, &org); err != nil {
		return err
	}
	if err := x.line("org", org); err != nil {
		return err
	}
	for _, of := range [][2]string{{"user", "users"}, {"key", "keys"}, {"limit", "limits"}, {"override", "overrides"}, {"credential", "credentials"}} {
		var list struct {
			Data []json.RawMessage `json:"data"`
		}
		if err := x.ask(ctx, http.MethodGet, pathOf("orgs", x.org, of[1]), nil, &list); err != nil {
			return err
		}
		for _, one := range list.Data {
			if err := x.line(of[0], one); err != nil {
				return err
			}
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

func (x *orgExport) money(ctx context.Context) error {
	var none time.Time
	if err := x.Entries(ctx, x.org, none, none, func(e budget.Entry) error { return x.line("ledger", e) }); err != nil {
		return err
	}
	days, err := x.names(ctx, "sums:")
	if err != nil {
		return err
	}
	for _, text := range days {
		day, err := time.Parse("20060102", text)
		if err != nil {
			return err
		}
		list, err := x.Rollups(ctx, x.org, day, day.Add(time.Hour))
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
	return x.Corrections(ctx, x.org, none, none, func(r budget.AuditRecord) error { return x.line("correction", r) })
}

// names lists what follows prefix in the names of the org's keys.
func (x *orgExport) names(ctx context.Context, prefix string) ([]string, error) {
	var out []string
	err := orgdata.Names(ctx, x.jobs.rdb, x.org, prefix, func(names []string) error {
		for _, n := range names {
			out = append(out, strings.TrimPrefix(n, prefix))
		}
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

// queued writes the jobs. Those of batches are in the batches' files.
func (x *orgExport) queued(ctx context.Context) error {
	for after := ""; ; {
		page, err := x.jobs.List(ctx, x.org, queue.Filter{}, after, 1000)
		if err != nil {
			return err
		}
		for _, j := range page.Jobs {
			if err := x.line("job", admin.JobLineOf(j)); err != nil {
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

func (x *orgExport) batchesAndFiles(ctx context.Context) error {
	quiet := slog.New(slog.DiscardHandler)
	stored := files.New(x.jobs.rdb, nil, files.Options{Logger: quiet})
	made := batch.NewStore(x.jobs.rdb, stored, quiet)
	users, err := x.names(ctx, "batches:")
	if err != nil {
		return err
	}
	for _, user := range users {
		if err := x.batchesOf(ctx, made, user); err != nil {
			return err
		}
	}
	if users, err = x.names(ctx, "files:"); err != nil {
		return err
	}
	for _, user := range users {
		if err := x.filesOf(ctx, stored, user); err != nil {
			return err
		}
	}
	return nil
}

func (x *orgExport) batchesOf(ctx context.Context, from *batch.Store, user string) error {
	for after := ""; ; {
		page, more, err := from.List(ctx, x.org, user, after, 100)
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

func (x *orgExport) filesOf(ctx context.Context, from *files.Store, user string) error {
	for after := ""; ; {
		page, more, err := from.List(ctx, files.Owner{Org: x.org, User: user}, files.Filter{After: after, Limit: 500, Oldest: true})
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

func (x *orgExport) audit(ctx context.Context) error {
	q := url.Values{"org": {x.org}, "limit": {"1000"}}
	for {
		var page struct {
			Data    []identity.AuditEntry `json:"data"`
			HasMore bool                  `json:"has_more"`
		}
		if err := x.ask(ctx, http.MethodGet, "/audit?"+q.Encode(), nil, &page); err != nil {
			return err
		}
		for _, e := range page.Data {
			if err := x.line("audit", e); err != nil {
				return err
			}
			q.Set("after", e.ID)
		}
		if !page.HasMore || len(page.Data) == 0 {
			return nil
		}
	}
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
