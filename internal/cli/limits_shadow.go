package cli

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/simulate"
)

func limitsShadowCommand() *cobra.Command {
	var f traceFlags
	c := &cobra.Command{
		Use: "shadow", Short: "Report what limits in shadow mode would have done", Args: cobra.NoArgs,
		Long: "A limit in shadow mode counts calls without refusing them. The ledger entry of a call records which of these limits the\n" +
			"call exceeded. This report sums up how many calls would have waited, for how long, and how many would have been refused.\n\n" +
			"No call actually waited, so an enforced limit would hold back fewer calls, each for longer; `llmguard simulate` estimates\n" +
			"how many. Calls that never ran are not in the ledger. A limit counts from the time it first had its current amount and\n" +
			"window in shadow mode.",
		Example: "  llmguard limits shadow --days 7\n  llmguard limits shadow --log november.jsonl -o csv",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.showShadow(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.add(c, listFormats...)
	return c
}

var shadowCSV = columnsOf(reflect.TypeFor[simulate.ShadowLine](), "limit:limit", "org:org", "user:user;text",
	"would_wait:would_wait", "wait_p50_ms:wait_p50_ms;int", "wait_p95_ms:wait_p95_ms;int", "wait_max_ms:wait_max_ms;int",
	"would_refuse:would_refuse")

func (f *traceFlags) showShadow(ctx context.Context, stdin io.Reader, w, notes io.Writer) error {
	var s simulate.Shadow
	if err := f.countShadow(ctx, &s, stdin); err != nil {
		return err
	}
	report := s.Report()
	switch f.usage.output {
	case "json", "yaml":
		return render(w, f.usage.output, report, nil)
	case "jsonl":
		return render(w, "jsonl", report.Lines, nil)
	case "csv":
		return csvOf(w, report.Lines, shadowCSV)
	}
	if report.HeldBack == 0 {
		fmt.Fprintf(notes, "no limit in shadow mode would have held back any of %s\n", plural(report.Calls, "call"))
		return nil
	}
	fmt.Fprintf(w, "%d of %s would have been held back\n\n", report.HeldBack, plural(report.Calls, "call"))
	if err := shadowTable(w, report.Limits); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return shadowTable(w, report.Lines)
}

func (f *traceFlags) countShadow(ctx context.Context, s *simulate.Shadow, stdin io.Reader) error {
	if len(f.logs) > 0 {
		return f.eachFile(stdin, func(name string, in io.Reader) error { return s.Read(ctx, name, in) })
	}
	from, to, err := f.usage.period.bounds(time.Now())
	if err != nil {
		return err
	}
	l, err := f.usage.open(ctx, false)
	if err != nil {
		return err
	}
	defer l.close()
	s.Made, err = l.shadowLimits(ctx)
	if err != nil {
		return err
	}
	return l.Entries(ctx, from, to, s.Entry)
}

// eachFile calls fn with each --log file.
func (f *traceFlags) eachFile(stdin io.Reader, fn func(name string, in io.Reader) error) error {
	for _, path := range f.logs {
		name, file, err := opened(path, stdin)
		if err != nil {
			return err
		}
		err = fn(name, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
