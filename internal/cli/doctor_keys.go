package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// keyBounds keep a busy Redis responsive: about 2% of a server's time, for at most 50 seconds.
func keyBounds() diagnose.KeyBounds {
	return diagnose.KeyBounds{MostKeys: 1_000_000, PerSecond: 20_000, Measure: 20_000, MostOrgs: 10}
}

// runKeys shows what is in Redis.
func runKeys(ctx context.Context, o doctorOptions, w io.Writer) error {
	cfg, err := config.LoadOperator(o.path)
	if err != nil {
		return err
	}
	if !cfg.Redis.Configured() {
		return app.ErrNoStore
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	report, err := diagnose.Keys(ctx, rdb, keyBounds())
	if err != nil {
		return err
	}
	if err := render(w, o.output, report, func(w io.Writer) error { return printKeys(w, report) }); err != nil {
		return err
	}
	if o.strict && len(report.Suspects) > 0 {
		return exit(exitBroken)
	}
	return nil
}

func printKeys(w io.Writer, r *diagnose.KeyReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tKEYS\tMEMORY\tPER KEY")
	for _, k := range r.Kinds {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", k.Kind, k.Keys, bytesText(k.Bytes), bytesText(k.Bytes/max(1, k.Keys)))
	}
	if len(r.Orgs) > 0 {
		fmt.Fprintln(t, "\nLARGEST ORGS\tKEYS\tMEMORY\t")
		for _, o := range r.Orgs {
			fmt.Fprintf(t, "%s\t%d\t%s\t\n", o.Org, o.Keys, bytesText(o.Bytes))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s, memory from a sample of %d\n", plural(int(r.Keys), "key"), r.Measured)
	if !r.Complete {
		fmt.Fprintln(w, "The database has more keys than were read; the counts cover only a part.")
	}
	for _, s := range r.Suspects {
		fmt.Fprintf(w, "warning: %d of %d %s have no lifetime and may stay forever, such as %s\n", s.Keys, s.Measured, s.Kind,
			s.Example)
	}
	return nil
}

// bytesText formats a size with three digits.
func bytesText(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/1000, 0
	for ; size >= 999.5 && unit < 3; unit++ {
		size /= 1000
	}
	return fmt.Sprintf("%.3g %cB", size, "kMGT"[unit])
}
