package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

type batchFlags struct{ url, key, caFile string }

func batchCommand() *cobra.Command {
	var f batchFlags
	c := &cobra.Command{
		Use: "batch", Short: "Run files of requests as batches, and fetch their results",
		Example: "  export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=lg_...\n" +
			"  llmguard batch submit in.jsonl --watch --out out.jsonl",
		Long: "Uses OpenAI's Batch API of a running llmguard, as the user who owns the API key.\n" +
			"The address and the key come from --url and --key, or OPENAI_BASE_URL and OPENAI_API_KEY.",
	}
	urlFlag(c.PersistentFlags(), &f.url)
	c.PersistentFlags().StringVar(&f.key, "key", "", "API key (default: OPENAI_API_KEY)")
	caFlag(c.PersistentFlags(), &f.caFile)
	c.AddCommand(batchSubmitCommand(&f), batchStatusCommand(&f), batchFetchCommand(&f), batchCancelCommand(&f),
		batchListCommand(&f), batchEstimateCommand())
	return c
}

type batches struct {
	*openai.Client
	tap *costTap
}

func (f *batchFlags) open() (*batches, error) {
	key := cmp.Or(f.key, os.Getenv("OPENAI_API_KEY"))
	if key == "" {
		return nil, errors.New("no API key: set OPENAI_API_KEY or --key")
	}
	cfg := openai.DefaultConfig(key)
	cfg.BaseURL = strings.TrimSuffix(f.url, "/")
	client, err := client(f.caFile, 0) // uploads and downloads may take any time
	if err != nil {
		return nil, err
	}
	tap := &costTap{client: client}
	cfg.HTTPClient = tap
	return &batches{openai.NewClientWithConfig(cfg), tap}, nil
}

// cost holds the fields that llmguard adds to a batch.
type cost struct {
	Estimated string   `json:"estimated_cost_usd"`
	Charged   string   `json:"charged_cost_usd"`
	Warnings  []string `json:"warnings"`
}

// costTap is the HTTP client below go-openai. It keeps the llmguard fields of the last
// response, which go-openai drops.
type costTap struct {
	client *http.Client
	last   struct {
		Cost   cost                  `json:"llmguard"`
		Errors *lists[batch.Problem] `json:"errors"`
	}
}

// Do implements openai.HTTPDoer.
func (t *costTap) Do(req *http.Request) (*http.Response, error) {
	resp, err := t.client.Do(req)
	if err != nil || !strings.Contains(req.URL.Path, "/batches") {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	t.last.Cost, t.last.Errors = cost{}, nil
	_ = json.Unmarshal(body, &t.last) // go-openai reports invalid bodies
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func (b *batches) get(ctx context.Context, id string) (openai.Batch, cost, error) {
	r, err := b.RetrieveBatch(ctx, id)
	return r.Batch, b.tap.last.Cost, err
}

func ended(status string) bool {
	return status == "completed" || status == "failed" || status == "expired" || status == "cancelled"
}

// batchSub returns a command that acts on one batch.
func batchSub(f *batchFlags, use, short string,
	run func(c *cobra.Command, b *batches, id string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " BATCH", Short: short, Args: cobra.ExactArgs(1),
		Example: "  llmguard batch " + use + " batch_5ycmz7yqwdzcprxg5kzvw2xkfe",
		RunE: func(c *cobra.Command, args []string) error {
			b, err := f.open()
			if err != nil {
				return err
			}
			return run(c, b, args[0])
		},
	}
}

func batchStatusCommand(f *batchFlags) *cobra.Command {
	watch := false
	c := batchSub(f, "status", "Show the progress of a batch", func(c *cobra.Command, b *batches, id string) error {
		if watch {
			return b.watch(c.Context(), c.ErrOrStderr(), id)
		}
		batch, cost, err := b.get(c.Context(), id)
		if err != nil {
			return err
		}
		b.describe(c.OutOrStdout(), batch, cost)
		return nil
	})
	c.Flags().BoolVar(&watch, "watch", false, "follow the batch until it ends")
	return c
}

func (b *batches) describe(w io.Writer, batch openai.Batch, cost cost) {
	var pairs []string
	line := func(name, value string) { pairs = append(pairs, name, escape.Text(value)) }
	file := func(id *string) string {
		if id == nil {
			return ""
		}
		return *id
	}
	n := batch.RequestCounts
	line("batch", batch.ID)
	line("status", batch.Status)
	line("endpoint", string(batch.Endpoint))
	line("requests", fmt.Sprintf("%d of %d, %d failed", n.Completed+n.Failed, n.Total, n.Failed))
	line("cost", decimalUSD(w, cost.Charged)+" so far, at most "+decimalUSD(w, cost.Estimated))
	line("expires", unixTime(batch.ExpiresAt))
	line("output", file(batch.OutputFileID))
	line("errors", file(batch.ErrorFileID))
	for _, warning := range cost.Warnings {
		line("warning", warning)
	}
	if problems := b.tap.last.Errors; problems != nil {
		for _, p := range problems.Data {
			line("problem", problemText(p))
		}
	}
	_ = facts(w, pairs...)
}

func batchCancelCommand(f *batchFlags) *cobra.Command {
	return batchSub(f, "cancel", "Cancel a batch and keep its results so far",
		func(c *cobra.Command, b *batches, id string) error {
			r, err := b.CancelBatch(c.Context(), id)
			if err != nil {
				return err
			}
			b.describe(c.OutOrStdout(), r.Batch, b.tap.last.Cost)
			return nil
		})
}

func batchListCommand(f *batchFlags) *cobra.Command {
	limit := 20
	c := &cobra.Command{
		Use: "list", Short: "List your batches, newest first", Args: cobra.NoArgs, Example: "  llmguard batch list",
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := f.open()
			if err != nil {
				return err
			}
			list, err := b.ListBatch(c.Context(), nil, &limit)
			if err != nil {
				return err
			}
			g := grid{
				head:    []string{"BATCH", "STATUS", "REQUESTS", "FAILED", "CREATED (UTC)"},
				numbers: make([]bool, 5),
			}
			for _, one := range list.Data {
				n := one.RequestCounts
				g.add(escape.Text(one.ID), escape.Text(one.Status), fmt.Sprintf("%d/%d", n.Completed+n.Failed, n.Total),
					strconv.Itoa(n.Failed), figures.Cell(unixTime(&one.CreatedAt)))
			}
			return g.write(c.OutOrStdout())
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "maximum number of batches, 1 to 100")
	return c
}

func batchFetchCommand(f *batchFlags) *cobra.Command {
	var output, errs string
	c := batchSub(f, "fetch", "Write the results of a batch", func(c *cobra.Command, b *batches, id string) error {
		batch, _, err := b.get(c.Context(), id)
		if err != nil {
			return err
		}
		if !ended(batch.Status) {
			return fmt.Errorf("the batch is %s; results are available when it ends (llmguard batch status --watch %s)",
				escape.Text(batch.Status), escape.Text(id))
		}
		return b.fetch(c, batch, output, errs)
	})
	c.Flags().StringVar(&output, "out", "-", "file for successful lines (- for standard output)")
	c.Flags().StringVar(&errs, "errors", "", "file for failed lines (default: not written)")
	return c
}

// fetch downloads the output and error files of a finished batch.
func (b *batches) fetch(c *cobra.Command, batch openai.Batch, output, errs string) error {
	if err := b.download(c, batch.OutputFileID, output); err != nil {
		return err
	}
	if batch.ErrorFileID != nil && errs == "" {
		fmt.Fprintf(c.ErrOrStderr(), "%d requests failed and others may not have run; write them with --errors FILE\n",
			batch.RequestCounts.Failed)
	}
	return b.download(c, batch.ErrorFileID, errs)
}

// download writes a file completely or not at all.
func (b *batches) download(c *cobra.Command, id *string, to string) error {
	if id == nil || to == "" {
		return nil
	}
	body, err := b.GetFileContent(c.Context(), *id)
	if err != nil {
		return err
	}
	defer body.Close()
	if to == "-" {
		_, err = io.Copy(c.OutOrStdout(), body)
		return err
	}
	return intoFile(to, copyOf(body))
}

func unixTime(seconds *int) string {
	if seconds == nil {
		return ""
	}
	return figures.Second(time.Unix(int64(*seconds), 0))
}
