package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/pricing"
)

// estimateFlags say how a file of requests is priced.
type estimateFlags struct {
	config, org, user string
	most              string
	batched           bool
	output            string
}

func batchEstimateCommand() *cobra.Command {
	var f estimateFlags
	c := &cobra.Command{
		Use: "estimate FILE|-", Short: "Say what a file of requests would cost, without sending anything",
		Args: cobra.ExactArgs(1),
		Long: "Checks a JSONL file (- is standard input) and adds up what its lines cost, by model: what to expect, and\n" +
			"the most, which is what llmguard holds. With --config the prices, models and limits on output of an org\n" +
			"count, and the outputs that were seen of it before; else the built-in prices, and every line is\n" +
			"expected to use its whole output limit.\n" +
			"Ends with an error when something is wrong with the file, or it can cost more than --max.",
		Example: "  llmguard batch estimate in.jsonl --max '$25'\n" +
			"  make-requests | llmguard batch estimate - -c llmguard.yaml --org acme -o json",
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), c.InOrStdin(), args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "a configuration whose prices and orgs count")
	flags.StringVar(&f.org, "org", "", "with --config: whose requests they are (default: the only org's)")
	flags.StringVar(&f.user, "user", "", "with --config: the user whose outputs so far tell what to expect")
	flags.StringVar(&f.most, "max", "", "fail when it can cost more than this, such as '$25'")
	flags.BoolVar(&f.batched, "batch-prices", false, "at the prices of the providers' own batch APIs")
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
	file := stdin
	if path != "-" {
		open, err := os.Open(path)
		if err != nil {
			return err
		}
		defer open.Close()
		file = open
	}
	q, err := batch.Estimate(file, *o)
	if err != nil {
		return err
	}
	if err := render(stdout, f.output, quoteView(q), func(w io.Writer) error { return quoteTable(w, q) }); err != nil {
		return err
	}
	return f.judge(q, bound, stderr)
}

// quoting reads the configuration, if there is one.
func (f *estimateFlags) quoting(ctx context.Context, stderr io.Writer) (*batch.QuoteOptions, error) {
	var cfg *config.Config
	org := f.org
	if f.config != "" {
		var err error
		cfg, err = config.Load(f.config)
		if err != nil {
			return nil, err
		}
		orgs, err := pickOrgs(orgIDs(cfg), f.org)
		if err != nil {
			return nil, err
		}
		if len(orgs) != 1 {
			return nil, misused("--org is needed: one org, whose requests they are")
		}
		org = orgs[0]
	}
	o, away, err := app.Quoting(ctx, cfg, org, f.user)
	if err != nil {
		return nil, err
	}
	if away != nil {
		fmt.Fprintf(stderr, "what outputs to expect is not known, the limits count: %v\n", away)
	}
	o.Caller.Batched = f.batched
	return o, nil
}

// judge lists what is wrong and makes the end of the command.
func (f *estimateFlags) judge(q *batch.Quote, bound pricing.Nano, stderr io.Writer) error {
	for _, p := range q.Problems {
		where := ""
		if p.Line != nil {
			where = fmt.Sprintf("line %d: ", *p.Line)
		}
		fmt.Fprintln(stderr, where+top.Printable(p.Message)+" ("+p.Code+")")
	}
	if len(q.Models) > 1 {
		fmt.Fprintf(stderr, "a batch takes one model: make a file of each of the %d\n", len(q.Models))
	}
	switch {
	case len(q.Problems) > 0:
		return fmt.Errorf("the file would not be taken: %s", plural(len(q.Problems), "problem"))
	case q.Total.Most > bound:
		return fmt.Errorf("it can cost %s, more than --max %s", q.Total.Most, bound)
	}
	return nil
}

// quotedModel is a line of the answer for programs.
type quotedModel struct {
	batch.ModelQuote
	Expected string `json:"expected_usd"`
	Most     string `json:"at_most_usd"`
}

func viewQuote(m batch.ModelQuote) quotedModel {
	return quotedModel{m, plainUSD(m.Expected), plainUSD(m.Most)}
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

func quoteTable(w io.Writer, q *batch.Quote) error {
	g := grid{
		head:    []string{"MODEL", "REQUESTS", "INPUT TOKENS", "OUTPUT AT MOST", "EXPECTED", "AT MOST"},
		numbers: []bool{false, true, true, true, true, true},
	}
	line := func(name string, m batch.ModelQuote) {
		g.add(top.Printable(name), whole(m.Requests), whole(m.Input), whole(m.Output), m.Expected.String(), m.Most.String())
	}
	for _, m := range q.Models {
		line(m.Model, m)
	}
	if len(q.Models) != 1 {
		line("total", q.Total)
	}
	return g.write(w)
}
