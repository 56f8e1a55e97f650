package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/tenants"
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
	cfg, err := config.Load(o.path)
	if err != nil {
		return err
	}
	urls, client, err := o.listeners(cfg)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for _, url := range urls {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(url, "/")+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is not ready: %s", url, resp.Status)
		}
	}
	return nil
}

func runDoctor(ctx context.Context, o doctorOptions, w io.Writer) error {
	cfg, policy, err := app.Check(o.path)
	if err != nil {
		return err
	}
	found, err := processes(ctx, cfg, o)
	if err != nil {
		return err
	}
	found = append(found, store(ctx, cfg)...)
	found = append(found, bounds(ctx, cfg)...)
	if diagnose.Count(found, diagnose.Error) == 0 || reachable(found) {
		found = append(found, heldMoney(ctx, cfg)...)
	}
	found = append(found, app.CheckPrices(cfg, policy, time.Now())...)
	found = append(found, leftovers(ctx, cfg)...)
	diagnose.Sort(found)
	r := newExamination(found)
	if err := render(w, o.output, r, func(w io.Writer) error {
		if err := r.table(w); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "\n%s\n", r.verdict())
		return err
	}); err != nil {
		return err
	}
	if r.Errors > 0 || o.strict && r.Warnings > 0 {
		return exit(exitBroken)
	}
	return nil
}

// leftovers lists what an earlier version wrote and this one does not use.
func leftovers(ctx context.Context, cfg *config.Config) []diagnose.Finding {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return app.CheckLeftovers(ctx, cfg)
}

// bounds lists the orgs without any spending bound. If Redis does not answer it lists none,
// because the effective orgs are unknown.
func bounds(ctx context.Context, cfg *config.Config) []diagnose.Finding {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return nil // already reported
	}
	defer rdb.Close()
	ids, err := app.LoadIdentities(ctx, cfg, rdb, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil
	}
	found := app.CheckBounds(ids.Effective(), ids.Policy(), time.Now())
	found = append(found, stopped(cfg, ids.Store.Snapshot().Stops)...)
	for i := range found { // the effective orgs are not in file order
		found[i].File, found[i].Path = "", ""
	}
	return found
}

// stopped lists what spending is stopped.
func stopped(cfg *config.Config, stops map[string]*tenants.Stop) (out []diagnose.Finding) {
	if cfg.KillSwitch == "stop" {
		out = append(out, diagnose.Finding{
			Area: "spending", Level: diagnose.Warning, What: "kill_switch: stop is set: all calls get 403 spending_stopped",
			Fix: "Set kill_switch: off and reload every process.",
		})
	}
	for _, org := range slices.Sorted(maps.Keys(stops)) {
		s, named := stops[org], org
		if org == tenants.AllOrgs {
			named = ""
		}
		text := stopText(admin.Stop{Org: stopOrg(named), Since: &s.Created, By: s.By, Reason: s.Reason})
		out = append(out, diagnose.Finding{
			Area: "spending", Level: diagnose.Warning, What: "stopped: " + text,
			Fix: "End it with `llmguard resume" + orgArgument(named) + "` when the cause is fixed.",
		})
	}
	return out
}

// reachable reports whether Redis answers.
func reachable(found []diagnose.Finding) bool {
	return slices.ContainsFunc(found, func(f diagnose.Finding) bool {
		return f.Area == "redis" && f.Level != diagnose.Error
	})
}

// processTime is how long one process has to respond.
const processTime = 10 * time.Second

// listeners returns the admin listeners to check, and a client for them.
func (o *doctorOptions) listeners(cfg *config.Config) ([]string, *http.Client, error) {
	if len(o.urls) > 0 {
		c, err := client(o.caFile, processTime)
		return o.urls, c, err
	}
	scheme := "http://"
	if cfg.Admin.TLS.Enabled() {
		scheme = "https://"
	}
	c, err := ownClient(cfg.Admin.TLS, processTime)
	return []string{scheme + dialable(cfg.Admin.Listen)}, c, err
}

// processes checks the running processes.
func processes(ctx context.Context, cfg *config.Config, o doctorOptions) ([]diagnose.Finding, error) {
	urls, client, err := o.listeners(cfg)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	quotas := map[string]diagnose.Quota{}
	for _, p := range cfg.Providers {
		for _, pool := range p.Pools {
			quotas[pool.ID] = diagnose.Quota{RPM: pool.RPM, TPM: pool.TPM}
		}
	}
	var found []diagnose.Finding
	var all []*diagnose.Process
	for _, url := range urls {
		url = strings.TrimRight(url, "/")
		p, err := diagnose.Ask(ctx, client, url, cfg.Admin.MetricsToken.Reveal())
		if err != nil {
			found = append(found, diagnose.Finding{
				Area: diagnose.ProcessArea(url), Level: diagnose.Error, What: "does not answer: " + err.Error(),
				Fix: "Check that it is running (the end of its log says why it stopped) and that this is its admin.listen.",
			})
			continue
		}
		all = append(all, p)
		found = append(found, p.Look(quotas)...)
	}
	return append(found, diagnose.SameFile(all)...), nil
}

// dialable returns an address at which a local listener can be reached.
func dialable(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// heldTooLong is how long a hold may remain after its lease has ended. Processes that could not
// reach Redis grant each hold one extra lease, which is added separately.
const heldTooLong = time.Minute

// heldMoney checks the holds and late charges of every org.
func heldMoney(ctx context.Context, cfg *config.Config) []diagnose.Finding {
	failed := func(err error) []diagnose.Finding {
		return []diagnose.Finding{{Area: "money", Level: diagnose.Error, What: "cannot be checked: " + err.Error()}}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return failed(err)
	}
	defer rdb.Close()
	if all, err := app.Effective(ctx, cfg, rdb, slog.New(slog.DiscardHandler)); err == nil {
		cfg = all
	}
	s := budget.New(rdb, budget.Options{})
	var found []diagnose.Finding
	lost, err := s.DataLoss.At(ctx)
	if err != nil {
		return failed(err)
	}
	if !lost.IsZero() {
		found = append(found, diagnose.Finding{
			Area: "money", Level: diagnose.Warning, What: "redis lost its data at " + lost.UTC().Format(time.RFC3339) +
				": every limit is closed for the length of its window from then on",
			Fix: "Restore a backup, or accept the loss with `llmguard limits reopen --all`.",
		})
	}
	for _, o := range cfg.Orgs {
		n, err := s.Expiry.Overdue(ctx, o.ID, cfg.Store.HoldLease+heldTooLong)
		if err != nil {
			return failed(err)
		}
		if n > 0 {
			found = append(found, diagnose.Finding{
				Area: "money", Level: diagnose.Error,
				What: fmt.Sprintf("org %s: %s not released a minute after expiry", o.ID, plural(n, "hold")),
				Fix:  "Start a proxy or worker, which releases them, and check that the clocks agree.",
			})
		}
		late, err := s.Ledger.Reconcile(ctx, o.ID, budget.MostReconcile)
		if err != nil {
			return failed(err)
		}
		if len(late) > 0 {
			found = append(found, diagnose.Finding{
				Area: "money", Level: diagnose.Warning,
				What: fmt.Sprintf("org %s: %s arrived too late to be booked automatically", o.ID, plural(len(late), "charge")),
				Fix:  "List them with `llmguard usage reconcile`, then charge or drop each.",
			})
		}
	}
	if len(found) == 0 {
		found = append(found, diagnose.Finding{
			Area: "money", Level: diagnose.OK,
			What: "no hold is overdue in " + plural(len(cfg.Orgs), "org"),
		})
	}
	return found
}
