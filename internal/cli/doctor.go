package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/checks"
	"github.com/llmguard/llmguard/internal/diagnose"
)

type doctorOptions struct {
	path, output string
	urls         []string
	caFile       string
	strict       bool
	ready        bool
	keys         bool
}

func doctorCommand() *cobra.Command {
	var o doctorOptions
	c := &cobra.Command{
		Use: "doctor", Short: "Diagnose a running llmguard and suggest fixes", Args: cobra.NoArgs,
		Long: "Reads /readyz and /metrics of running processes, and Redis. It finds stuck reservations, long waits, failed deliveries,\n" +
			"failed reloads and processes with different configuration files, and changes nothing. List every process with --url;\n" +
			"without it, doctor checks the process at admin.listen of the configuration.\n\n" +
			"--keys reads up to a million keys at 20,000 a second, and measures a sample. It needs no running process.\n\n" +
			"Exit codes: 0 no errors; 1 the configuration is invalid or cannot be read; 2 there are errors (with --strict: or\n" +
			"warnings).",
		Example: "  llmguard doctor\n  llmguard doctor --url http://proxy-1:9090 --url http://worker-1:9090\n  llmguard doctor --keys",
	}
	configFlag(c, &o.path)
	c.Flags().StringSliceVar(&o.urls, "url", nil, "admin listeners, such as http://127.0.0.1:9090 (default: admin.listen)")
	caFlag(c.Flags(), &o.caFile)
	c.Flags().BoolVar(&o.ready, "ready", false,
		"only check readiness, for container health checks")
	c.Flags().BoolVar(&o.keys, "keys", false,
		"show what Redis stores instead: keys and memory by kind, the largest orgs, keys that may stay forever")
	c.Flags().BoolVar(&o.strict, "strict", false, "treat warnings as errors")
	formatFlag(c, &o.output, plainFormats...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.ready {
			return o.askReady(c.Context())
		}
		if o.keys {
			return runKeys(c.Context(), o, c.OutOrStdout())
		}
		return runDoctor(c.Context(), o, c.OutOrStdout())
	}
	return c
}

// askReady fails unless every process reports ready.
func (o *doctorOptions) askReady(ctx context.Context) error {
	cfg, err := config.LoadOperator(o.path)
	if err != nil {
		return err
	}
	urls, client, err := o.listeners(cfg)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for _, url := range urls {
		if err := diagnose.Ready(ctx, client, strings.TrimRight(url, "/")); err != nil {
			return err
		}
	}
	return nil
}

func runDoctor(ctx context.Context, o doctorOptions, w io.Writer) error {
	cfg, policy, err := app.Check(o.path, config.LoadOperator)
	if err != nil {
		return err
	}
	processes, err := o.processes(ctx, cfg)
	if err != nil {
		return err
	}
	found := checks.Deployment(ctx, cfg, policy, processes)
	return newExamination(found).show(w, o.output, o.strict, examination.verdict)
}

// storeTime is how long Redis has to answer all questions.
const storeTime = 15 * time.Second

// processTime is how long one process has to respond.
const processTime = 10 * time.Second

// listeners returns the admin listeners to check, and a client for them.
func (o *doctorOptions) listeners(cfg *config.Config) ([]string, *http.Client, error) {
	if len(o.urls) > 0 {
		c, err := client(o.caFile, processTime)
		return o.urls, c, err
	}
	c, err := ownClient(cfg.Admin.TLS, processTime)
	return []string{listenerURL(cfg.Admin.Listen, cfg.Admin.TLS)}, c, err
}

func listenerURL(listen string, tls config.TLS) string {
	if tls.Enabled() {
		return "https://" + dialable(listen)
	}
	return "http://" + dialable(listen)
}

func (o *doctorOptions) processes(ctx context.Context, cfg *config.Config) (all []*diagnose.Process, err error) {
	urls, client, err := o.listeners(cfg)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	for _, url := range urls {
		all = append(all, diagnose.AskProcess(ctx, client, strings.TrimRight(url, "/"), cfg.Admin.MetricsToken.Reveal()))
	}
	return all, nil
}

// dialable returns an address at which a local listener can be reached.
func dialable(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// keyBounds keep a busy Redis responsive: about 2% of a server's time, for at most 50 seconds.
func keyBounds() diagnose.KeyBounds {
	return diagnose.KeyBounds{MostKeys: 1_000_000, PerSecond: 20_000, Measure: 20_000, MostOrgs: 10}
}

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
