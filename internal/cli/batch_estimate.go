package cli

import (
	"context"
	"fmt"
	"io"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

type estimateFlags struct {
	config, org, user string
	most              string
	batched           bool
	output            string
}

func batchEstimateCommand() *cobra.Command {
	var f estimateFlags
	c := &cobra.Command{
		Use: "estimate FILE|-", Short: "Estimate the cost of a file of requests without sending it",
		Args: cobra.ExactArgs(1),
		Long: "Checks a JSONL file (- for standard input) and adds up the cost of its lines by model: the expected cost, and the maximum,\n" +
			"which llmguard reserves. With --config it uses the prices, models and output limits of an org, and the output lengths\n" +
			"recorded for it. Otherwise it uses built-in prices and assumes that every line uses its full output limit.\n\n" +
			"Fails if the file is invalid or can cost more than --max.",
		Example: "  llmguard batch estimate in.jsonl --max '$25'\n" +
			"  make-requests | llmguard batch estimate - -c llmguard.yaml --org acme -o json",
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), c.InOrStdin(), args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "configuration with the prices and orgs to use")
	flags.StringVar(&f.org, "org", "", "with --config: the org that sends the requests (default: the only org)")
	flags.StringVar(&f.user, "user", "", "with --config: the user whose past output lengths to use")
	flags.StringVar(&f.most, "max", "", "fail if it can cost more than this, such as '$25'")
	flags.BoolVar(&f.batched, "batch-prices", false, "use the prices of the providers' own batch APIs")
	formatFlag(c, &f.output, plainFormats...)
	return c
}

func (f *estimateFlags) run(ctx context.Context, stdin io.Reader, path string, stdout, stderr io.Writer) error {
	bound := pricing.MaxNano
	var err error
	if f.most != "" {
		bound, err = pricing.ParseUSD(f.most)
		if err != nil {
			return misused("--max: %w", err)
		}
	}
	o, err := f.quoting(ctx, stderr)
	if err != nil {
		return err
	}
	_, file, err := opened(path, stdin)
	if err != nil {
		return err
	}
	defer file.Close()
	q, err := batch.Estimate(file, *o)
	if err != nil {
		return err
	}
	view := quoteView(q)
	if err := render(stdout, f.output, view, func(w io.Writer) error { return quoteTable(w, view) }); err != nil {
		return err
	}
	return f.judge(q, bound, stderr)
}

// quoting loads the configuration, if there is one.
func (f *estimateFlags) quoting(ctx context.Context, stderr io.Writer) (*batch.QuoteOptions, error) {
	var cfg *config.Config
	org := f.org
	if f.config != "" {
		var err error
		cfg, err = config.LoadOperator(f.config)
		if err != nil {
			return nil, err
		}
		orgs, err := pickOrgs(orgIDs(cfg), f.org)
		if err != nil {
			return nil, err
		}
		if len(orgs) != 1 {
			return nil, misused("--org is required: the org that sends the requests")
		}
		org = orgs[0]
	}
	o, away, err := app.Quoting(ctx, cfg, org, f.user)
	if err != nil {
		return nil, err
	}
	if away != nil {
		fmt.Fprintf(stderr, "past output lengths unavailable, using the output limits: %v\n", away)
	}
	o.Caller.Batched = f.batched
	return o, nil
}

// judge lists the problems and returns the command's error.
func (f *estimateFlags) judge(q *batch.Quote, bound pricing.Nano, stderr io.Writer) error {
	for _, p := range q.Problems {
		fmt.Fprintln(stderr, escape.Text(problemText(p)))
	}
	if len(q.Models) > 1 {
		fmt.Fprintf(stderr, "a batch takes one model; split the file into %d, one per model\n", len(q.Models))
	}
	switch {
	case len(q.Problems) > 0:
		return fmt.Errorf("the file would be rejected: %s", plural(len(q.Problems), "problem"))
	case q.Total.Most > bound:
		return fmt.Errorf("the file can cost %s, more than --max %s", q.Total.Most, bound)
	}
	return nil
}

func problemText(p batch.Problem) string {
	text := p.Message + " (" + p.Code + ")"
	if p.Line != nil {
		text = fmt.Sprintf("line %d: %s", *p.Line, text)
	}
	return text
}

type quotedModel struct {
	batch.ModelQuote
	Expected string `json:"expected_usd"`
	Most     string `json:"at_most_usd"`
}

func viewQuote(m batch.ModelQuote) quotedModel {
	return quotedModel{m, m.Expected.Decimal(), m.Most.Decimal()}
}

type quoted struct {
	Models   []quotedModel   `json:"models"`
	Total    quotedModel     `json:"total"`
	Problems []batch.Problem `json:"problems"`
}

func quoteView(q *batch.Quote) quoted {
	v := quoted{Models: []quotedModel{}, Total: viewQuote(q.Total), Problems: q.Problems}
	for _, m := range q.Models {
		v.Models = append(v.Models, viewQuote(m))
	}
	if v.Problems == nil {
		v.Problems = []batch.Problem{}
	}
	return v
}

var quoteColumns = columnsOf(reflect.TypeFor[quotedModel](), "model:MODEL", "requests:REQUESTS",
	"input_tokens:INPUT TOKENS", "max_output_tokens:MAX OUTPUT", "expected_usd:EXPECTED;dollars", "at_most_usd:MAX COST;dollars")

func quoteTable(w io.Writer, v quoted) error {
	rows := v.Models
	if len(rows) != 1 {
		v.Total.Model = "total"
		rows = append(rows, v.Total)
	}
	return tableOf(w, rows, quoteColumns)
}
