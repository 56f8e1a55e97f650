package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
)

func orgsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "orgs", Short: "List, create and change orgs",
		Long: "Works on orgs in the configuration file and in Redis. Values set here override the file, field by field; --unset restores\n" +
			"the value of the file.\n\n" +
			adminHelp,
		Example: "  llmguard orgs list\n" +
			"  llmguard orgs create acme --name 'Acme Inc' --models 'gpt-*'\n" +
			"  llmguard orgs update acme --over-limit refuse --reason 'no queueing wanted'",
	}
	c.AddCommand(orgsListCommand(), orgsGetCommand(), orgsCreateCommand(), orgsUpdateCommand(),
		switchCommand("org", "disable", true), switchCommand("org", "enable", false), orgsDeleteCommand(),
		orgsExportCommand(), orgsPurgeCommand(), credentialsCommand())
	return c
}

func orgsListCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{Use: "list", Short: "List orgs", Args: cobra.NoArgs, Example: "  llmguard orgs list"}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.Org `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/orgs", nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return orgTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	return c
}

func orgTable(w io.Writer, list []admin.Org) error {
	g := grid{
		head:    []string{"id", "name", "status", "users", "keys", "weight", "source"},
		numbers: []bool{false, false, false, true, true, true, false},
	}
	for _, o := range list {
		g.add(o.ID, escape.Text(o.Name), onOff(o.Disabled), strconv.Itoa(o.Users), strconv.Itoa(o.Keys),
			strconv.Itoa(o.Weight), string(o.Source))
	}
	return g.write(w)
}

func onOff(disabled bool) string {
	if disabled {
		return "disabled"
	}
	return "active"
}

// facts is a table of names and values.
func facts(w io.Writer, pairs ...string) error {
	g := grid{numbers: []bool{false, false}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			g.add(pairs[i], pairs[i+1])
		}
	}
	return g.write(w)
}

func orgFacts(w io.Writer, o *admin.Org) error {
	return facts(w, "id", o.ID, "name", escape.Text(o.Name), "status", onOff(o.Disabled), "models", all(o.Models),
		"providers", all(o.Providers),
		"default output limit", orNone(o.DefaultOutputLimit), "hold", o.Hold, "over limit", o.OverLimit, "max wait",
		o.MaxWait,
		"on disconnect", o.OnDisconnect, "on store failure", o.OnStoreFailure, "builtin tools", yesNo(o.AllowBuiltinTools),
		"retry started jobs", yesNo(o.RetryStartedJobs), "weight", strconv.Itoa(o.Weight), "spread",
		strconv.Itoa(o.Spread), "max priority", o.MaxPriority, "plan", cmp.Or(o.Plan, "not set"),
		"labels", pairsText(o.Labels), "cache", cacheText(o.Cache), "runs", runsText(&o.Runs),
		"worst case per hour",
		boundOf(o).HourText(func(n pricing.Nano) string { return usd(w, n) }), "users", strconv.Itoa(o.Users),
		"keys", strconv.Itoa(o.Keys), "source", string(o.Source))
}

// runsText describes the bounds of runs.
func runsText(r *tenants.Runs) string {
	if *r.MaxDepth == 0 {
		return "off"
	}
	amount := "any amount"
	if *r.MaxAmount != "0" {
		amount = "at most " + *r.MaxAmount
	}
	return fmt.Sprintf("%d open, %d inside one another, %s, for at most %s", *r.MaxOpen, *r.MaxDepth, amount, *r.MaxLife)
}

// cacheText describes a response cache.
func cacheText(c *tenants.Cache) string {
	if c == nil {
		return "off"
	}
	text := "answers up to " + *c.MaxAge + " old, " + *c.Cost + " of the cost, at most "
	if *c.MaxBytes == "0" {
		text = strings.TrimSuffix(text, ", at most ")
	} else {
		text += *c.MaxBytes + " bytes"
	}
	if *c.Always {
		return text + ", for every call"
	}
	return text + ", on request"
}

// boundOf returns the spending bound in a response.
func boundOf(o *admin.Org) guard.Bound {
	b := guard.Bound{Hour: guard.Unlimited, None: o.Unbounded, Users: o.UnboundedUsers}
	if o.WorstHour != nil {
		b.Hour = pricing.Nano(*o.WorstHour)
	}
	return b
}

func all(list []string) string {
	if len(list) == 0 {
		return "all"
	}
	return escape.Text(strings.Join(list, ", "))
}

func orNone(n int64) string {
	if n == 0 {
		return "none"
	}
	return whole(n)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// showOrg sends a request for an org and prints it.
func showOrg(c *cobra.Command, f *adminFlags, method, path string, body any) error {
	return f.run(c, func(a *adminClient) error {
		var o admin.Org
		if err := a.ask(c.Context(), method, path, body, &o); err != nil {
			return err
		}
		if method == http.MethodPost && o.Unbounded {
			fmt.Fprintf(c.ErrOrStderr(), "warning: %s.\n%s\n", boundOf(&o).Warning(o.ID), guard.BoundFix(o.ID))
		}
		return render(c.OutOrStdout(), f.output, o, func(w io.Writer) error { return orgFacts(w, &o) })
	})
}

func orgsGetCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use:     "get ORG",
		Short:   "Show an org",
		Args:    cobra.ExactArgs(1),
		Example: "  llmguard orgs get acme",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return showOrg(c, &f, http.MethodGet, pathOf("orgs", args[0]), nil)
	}
	f.add(c, listFormats...)
	return c
}

// orgFields returns the flags that set fields of an org.
func orgFields() *fields {
	var s fields
	s.text("name", "name", "display name")
	s.list("models", "models", "allowed models, as comma-separated patterns")
	s.list("providers", "providers", "allowed providers, comma-separated")
	s.number("default-output-limit", "default_output_limit", "output tokens for requests that set no output limit")
	s.text("hold", "hold", "max or grow")
	s.text("over-limit", "over_limit", "wait or refuse")
	s.text("max-wait", "max_wait", "how long calls may wait, such as 10m")
	s.text("on-disconnect", "on_disconnect", "auto, cancel or finish")
	s.text("on-store-failure", "on_store_failure", "deny, local or allow")
	s.truth("allow-builtin-tools", "allow_builtin_tools", "allow the provider's built-in tools")
	s.truth("retry-started-jobs", "retry_started_jobs", "rerun jobs whose worker died")
	s.number("weight", "weight", "share of the queue relative to other orgs (default 100)")
	s.text("plan", "plan", "plan of users without one (default: that of defaults)")
	s.number("spread", "spread", "parts of the org's money, for several servers of a Redis Cluster (default 1)")
	s.text("max-priority", "max_priority", "highest priority of calls: high, normal or low (default normal)")
	s.pairs("label", "labels", "label of calls with the org's keys, as name=value (repeat for several; replaces all)")
	s.text("cache-max-age", "cache.max_age", "how long the response cache stores answers, such as 1h (0: no cache)")
	s.text("cache-cost", "cache.cost",
		"cost of a cached answer, in percent of the original call's, such as 25% (default 0%)")
	s.truth("cache-always", "cache.always", "use the cache for every call, not only for those that ask for it")
	s.text("cache-max-bytes", "cache.max_bytes", "maximum size of the cache (default 64MB)")
	s.number("runs-max-depth", "runs.max_depth", "runs inside one another, at most 4 (default 4; 0: no runs)")
	s.number("runs-max-open", "runs.max_open", "open runs of a key, and inside a run (default 100)")
	s.text("runs-max-amount", "runs.max_amount", "most that a run may have, such as $50 (default 0: any amount)")
	s.text("runs-max-life", "runs.max_life", "longest time until a run expires (default 7d)")
	return &s
}

func orgsCreateCommand() *cobra.Command {
	var f adminFlags
	s := orgFields()
	c := &cobra.Command{
		Use: "create ORG", Short: "Create an org", Args: cobra.ExactArgs(1),
		Example: "  llmguard orgs create acme --name 'Acme Inc'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := s.body(c, map[string]any{"id": args[0]})
		if err != nil {
			return err
		}
		return showOrg(c, &f, http.MethodPost, "/orgs", body)
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, false)
	return c
}

func orgsUpdateCommand() *cobra.Command {
	var f adminFlags
	s := orgFields()
	c := &cobra.Command{
		Use: "update ORG", Short: "Change an org", Args: cobra.ExactArgs(1),
		Example: "  llmguard orgs update acme --weight 200\n  llmguard orgs update acme --unset weight\n" +
			"  llmguard orgs update acme --cache-max-age 1h --cache-cost 25%",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := s.body(c, map[string]any{})
		if err != nil {
			return err
		}
		return showOrg(c, &f, http.MethodPatch, pathOf("orgs", args[0]), body)
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, true)
	return c
}

func orgsDeleteCommand() *cobra.Command {
	return deleteCommand("org", "Delete an org that was created at runtime (its ledger and jobs are kept)",
		func(c *cobra.Command, a *adminClient, args []string) error {
			if err := a.ask(c.Context(), http.MethodDelete, pathOf("orgs", args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "deleted org %s from Redis\n", args[0])
			return nil
		})
}
