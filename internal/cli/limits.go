package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

// subject identifies the org, user, key or IP address of a limit.
type subject struct {
	org, user, key, ip, group, plan string
	labels                          labelFilter
}

// add registers the flags. user and key say what naming one does.
func (s *subject) add(c *cobra.Command, user, key string) {
	orgFlag(c, &s.org)
	c.Flags().StringVar(&s.user, "user", "", user)
	c.Flags().StringVar(&s.key, "key", "", key)
}

// member registers the flags for a group and a plan.
func (s *subject) member(c *cobra.Command, group, plan string) {
	c.Flags().StringVar(&s.group, "group", "", group)
	c.Flags().StringVar(&s.plan, "plan", "", plan)
	c.MarkFlagsMutuallyExclusive("user", "group", "plan")
}

// query returns the subject as query parameters.
func (s *subject) query() string {
	q := url.Values{}
	if s.user != "" {
		q.Set("user", s.user)
	}
	if s.key != "" {
		q.Set("key", s.key)
	}
	if s.ip != "" {
		q.Set("ip", s.ip)
	}
	if s.group != "" {
		q.Set("group", s.group)
	}
	if s.plan != "" {
		q.Set("plan", s.plan)
	}
	for _, pair := range s.labels.pairs {
		q.Add("label", pair)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

func limitsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "limits", Short: "View, set, temporarily raise and reset limits",
		Long: "Setting a new amount keeps the usage. An override changes an amount until a given time, then expires automatically.\n\n" +
			adminHelp,
		Example: "  llmguard limits get --org acme --user alice\n" +
			"  llmguard limits override --org acme --user alice --limit daily --add '$200' --until tonight --reason 'launch day'\n" +
			"  llmguard limits set daily --org acme --amount '$50'\n" +
			"  llmguard limits reset daily --org acme --user alice --reason 'bug in our script'",
	}
	c.AddCommand(limitsGetCommand(), limitsSetCommand(), limitsUnsetCommand(), limitsOverrideCommand(),
		limitsOverridesCommand(), limitsEndCommand(), limitsResetCommand(), limitsReopenCommand(),
		limitsRefusalsCommand(), limitsShadowCommand(), limitsSuggestCommand(), limitsExplainCommand(),
		limitsRequestsCommand())
	return c
}

// limitFields returns the flags that set fields of a limit.
func limitFields() *fields {
	var s fields
	s.text("subject", "subject", "what has a counter of its own: the org, each group, user, key, ip or value of a\n"+
		"label, or each combination, such as user+session")
	s.text("only", "only",
		"the one user, key, address or value of a label that this limit of the org applies to (default: each)")
	s.text("metric", "metric", "cost, tokens, requests or concurrency")
	s.text("mode", "mode", "enforce, shadow or off")
	s.text("amount", "amount", "'$50' for cost, a count for the others")
	s.text("window", "window", "sliding window, such as 24h or 7d")
	s.truth("exact", "exact", "make the window exact to the microsecond")
	s.truth("fixed", "fixed", "make the window fixed: aligned to multiples of its length")
	s.text("calendar", "calendar", "minute, hour, day, week, month, quarter or year")
	s.text("starts", "starts", "start of calendar periods: 15 (of months), sunday (of weeks), 04-06 (of years)")
	s.text("tz", "tz", "time zone of the calendar, such as Europe/Berlin")
	s.list("models", "models", "only for these models")
	s.list("endpoints", "endpoints", "only for these endpoints")
	s.clearable = []string{"bucket"}
	return &s
}

func limitsSetCommand() *cobra.Command {
	var f adminFlags
	var of subject
	var capacity, refill string
	s := limitFields()
	c := &cobra.Command{
		Use: "set LIMIT", Short: "Create or change a limit (its usage is kept)", Args: cobra.ExactArgs(1),
		Example: "  llmguard limits set daily --org acme --amount '$50'\n" +
			"  llmguard limits set daily --org acme --user alice --amount '$80'\n" +
			"  llmguard limits set user-day --org acme --subject user --amount '$20' --window 1d\n" +
			"  llmguard limits set team-month --org acme --group research --amount '$500' --calendar month\n" +
			"  llmguard limits set daily --org all --plan free --amount '$1' --window 1d\n" +
			"  llmguard limits set team --org acme --metric cost --capacity '$200' --refill '$50/1h'\n" +
			"  llmguard limits set daily --org acme --mode shadow\n" +
			"  llmguard limits set hour --org all --amount '$20' --window 1h",
		Long: "--org all sets a limit for every org in one call, including orgs created later. It overrides `defaults` in the\n" +
			"configuration file. Each org has its own counter, and an org's own limit of the same name takes precedence.\n\n" +
			"--group research sets a limit of a group: its users share the amount, or each has it with --subject user. --plan free\n" +
			"sets a limit of a plan, for all who have it, in this org or with --org all in every org. Groups and plans begin to\n" +
			"exist with their first limit.\n\n" +
			"--user alice makes a limit of alice's own. --subject user gives each user a counter in a limit of the org; with\n" +
			"--only alice only she has it. A limit has one shape: --window, --calendar, or --capacity and --refill.",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body := map[string]any{}
		bucket := map[string]any{}
		if capacity != "" {
			bucket["capacity"] = capacity
		}
		if refill != "" {
			bucket["refill"] = refill
		}
		if len(bucket) > 0 {
			body["bucket"] = bucket
		}
		if err := emptied(c, "amount", "capacity", "refill"); err != nil {
			return err
		}
		body, err := s.body(c, body)
		if err != nil {
			return err
		}
		path := pathOf("orgs", of.org, "limits", args[0]) + of.query()
		return f.run(c, func(a *adminClient) error {
			var l admin.Limit
			if err := a.ask(c.Context(), http.MethodPatch, path, body, &l); err != nil {
				return s.inFlags(c, err)
			}
			return render(c.OutOrStdout(), f.output, l, func(w io.Writer) error { return limitTable(w, []admin.Limit{l}) })
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	orgFlag(c, &of.org)
	c.Flags().StringVar(&of.user, "user", "",
		"set this user's own limit, which replaces the org's of the same name (implies --subject user)")
	of.member(c, "set a limit of this group (default: --subject group)", "set a limit of this plan")
	c.Flags().StringVar(&capacity, "capacity", "", "capacity of a bucket: '$200' or a count")
	c.Flags().StringVar(&refill, "refill", "", "refill of a bucket: '$50/1h' or '5000/1m'")
	s.add(c, true)
	return c
}

func limitsUnsetCommand() *cobra.Command {
	var of subject
	c := deleteCommand("limit", "Drop runtime changes to a limit (file value applies again), or delete a runtime limit",
		func(c *cobra.Command, a *adminClient, args []string) error {
			if err := a.ask(c.Context(), http.MethodDelete,
				pathOf("orgs", of.org, "limits", args[0])+of.query(), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "removed runtime changes to limit %s of org %s\n", args[0], of.org)
			return nil
		})
	c.Use, c.Example = "unset LIMIT", "  llmguard limits unset daily --org acme --user alice --yes"
	orgFlag(c, &of.org)
	c.Flags().StringVar(&of.user, "user", "", "the user whose own limit it is (default: the limit of the org)")
	of.member(c, "the group whose limit it is", "the plan whose limit it is")
	return c
}

func limitsOverrideCommand() *cobra.Command {
	var f adminFlags
	var s subject
	var limit, add, amount, end, ip string
	c := &cobra.Command{
		Use: "override", Short: "Temporarily change a limit", Args: cobra.NoArgs,
		Long: "An override keeps the usage of the limit. Without --user and --key it applies to everyone that the limit counts. --until\n" +
			"accepts tonight (the next midnight on this machine), tomorrow, 18:00, 4h, 7d, 2026-12-01 or 2026-12-01T18:00:00+01:00.",
		Example: "  llmguard limits override --org acme --user alice --limit daily --add '$200' --until tonight --reason 'launch day'\n" +
			"  llmguard limits override --org acme --limit daily --amount '$10' --until 18:00 --reason 'runaway job'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		at, err := until(end, time.Now())
		if err != nil {
			return misused("--until %w", err)
		}
		if err := emptied(c, "add", "amount"); err != nil {
			return err
		}
		if (add == "") == (amount == "") {
			return errors.New("use either --add '$200' or --amount '$500'")
		}
		body := map[string]any{"limit": limit, "until": at, "reason": f.reason}
		for name, value := range map[string]string{
			"user": s.user, "key": s.key, "ip": ip, "group": s.group, "add": add, "amount": amount,
		} {
			if value != "" {
				body[name] = value
			}
		}
		return f.run(c, func(a *adminClient) error {
			var o admin.Override
			if err := a.ask(c.Context(), http.MethodPost, pathOf("orgs", s.org, "overrides"), body, &o); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, o, func(w io.Writer) error {
				fmt.Fprintf(w, "%s: %s until %s (%s)\nend it early with: llmguard limits end %s --org %s\n", o.Limit,
					overrideText(w, o),
					o.Until.Local().Format("2006-01-02 15:04 MST"), figures.Lasting(time.Until(o.Until)), o.ID, s.org)
				return nil
			})
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, "change the limit for this user only", "change the limit for this key only")
	fl := c.Flags()
	fl.StringVar(&ip, "ip", "", "change the limit for this client address only")
	fl.StringVar(&s.group, "group", "", "change the limit that the users of this group share")
	fl.StringVar(&limit, "limit", "", "name of the limit (required)")
	fl.StringVar(&add, "add", "", "amount to add: '$200', '-$5', 1000")
	fl.StringVar(&amount, "amount", "", "new amount: '$500', 1000")
	fl.StringVar(&end, "until", "", "when the override expires (required)")
	for _, name := range []string{"limit", "until", "reason"} {
		_ = c.MarkFlagRequired(name)
	}
	return c
}

func limitsOverridesCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use: "overrides", Short: "List overrides, including those that ended in the last week",
		Example: "  llmguard limits overrides --org acme",
		Args:    cobra.NoArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.Override `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, pathOf("orgs", org, "overrides"), nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error {
				g := grid{
					head:    []string{"id", "limit", "change", "until (UTC)", "active", "by", "reason"},
					numbers: make([]bool, 7),
				}
				for _, o := range l.Data {
					g.add(o.ID, o.Limit, overrideText(w, o), day(&o.Until, ""), yesNo(o.Active), escape.Text(o.By),
						escape.Text(o.Reason))
				}
				return g.write(w)
			})
		})
	}
	f.add(c, listFormats...)
	orgFlag(c, &org)
	return c
}

func limitsEndCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use:   "end OVERRIDE",
		Short: "End an override now",
		Args:  cobra.ExactArgs(1),
		Example: "  llmguard limits overrides --org acme -o json\n" +
			"  llmguard limits end 01m84kynm3jp5p1nr8mr0yampe --org acme",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			if err := a.ask(c.Context(), http.MethodDelete, pathOf("orgs", org, "overrides", args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "override %s has ended\n", args[0])
			return nil
		})
	}
	f.add(c)
	f.why(c)
	orgFlag(c, &org)
	return c
}

func limitsResetCommand() *cobra.Command {
	var f adminFlags
	var s subject
	var all, yes bool
	c := &cobra.Command{
		Use: "reset [LIMIT]", Short: "Reset a limit's usage to zero (ledger and in-flight calls are kept)",
		Long: "A limit has one counter per org, user, key or address. LIMIT resets the counter of the subject that you name, immediately.\n" +
			"With --all, several counters are reset: those of one LIMIT for everybody; without LIMIT, those of all limits; with --user\n" +
			"or --key, those that count this user or key. --all first shows what it will reset, and asks for confirmation unless you\n" +
			"use --yes. What open calls hold stays counted.\n\n" + adminHelp,
		Example: "  llmguard limits reset daily --org acme --user alice --reason 'bug in our script'\n" +
			"  llmguard limits reset --org acme --all --reason 'runaway agent' --yes\n" +
			"  llmguard limits reset --org acme --user alice --all --reason 'runaway agent' --yes\n" +
			"  llmguard limits reset daily --org acme --all --reason 'wrong price' --yes",
		Args: cobra.MaximumNArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case all && (s.ip+s.group != "" || len(s.labels.pairs) > 0):
			return misused("--all does not accept --ip, --group and --label; name a LIMIT and leave out --all")
		case !all && len(args) == 0:
			return misused("name a LIMIT, or use --all to reset all limits")
		case !all && yes:
			return misused("--yes confirms --all; a single counter is reset without confirmation")
		}
		return f.run(c, func(a *adminClient) error {
			if all {
				return a.resetAll(c, &f, s, args, yes)
			}
			return a.resetOne(c, &f, s, args[0])
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, "the user whose usage is reset, for limits with a counter per user",
		"the key whose usage is reset, for limits with a counter per key")
	c.Flags().StringVar(&s.ip, "ip", "", "client address, for limits per address")
	c.Flags().StringVar(&s.group, "group", "", "the group whose shared usage is reset")
	s.labels.add(c, "value of a label, as name=value, for limits per label (repeat for several)")
	c.Flags().BoolVar(&all, "all", false, "reset several counters: see above")
	c.Flags().BoolVar(&yes, "yes", false, "confirm --all")
	_ = c.MarkFlagRequired("reason")
	return c
}

func limitsReopenCommand() *cobra.Command {
	var f adminFlags
	var org string
	var all bool
	c := &cobra.Command{
		Use: "reopen", Short: "Reopen limits that closed because Redis lost its data", Args: cobra.NoArgs,
		Long: "If Redis loses its data, the usage is unknown, so each limit closes for the length of its window. Reopened limits count\n" +
			"from zero. --all reopens the limits of every org and the spend caps.",
		Example: "  llmguard limits reopen --org acme --reason 'Redis was flushed by mistake'\n" +
			"  llmguard limits reopen --all --reason 'new Redis'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, what := pathOf("limits", "reopen"), "all orgs and the spend caps"
		if org != "" {
			path, what = pathOf("orgs", org, "limits", "reopen"), "org "+org
		}
		return f.run(c, func(a *adminClient) error {
			if (org == "") != all {
				return errors.New("use either --org or --all")
			}
			if err := a.ask(c.Context(), http.MethodPost, path, map[string]any{"reason": f.reason}, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "the limits of %s now count from zero\n", what)
			return nil
		})
	}
	f.add(c)
	f.why(c)
	c.Flags().StringVar(&org, "org", "", "the org")
	c.Flags().BoolVar(&all, "all", false, "every org and the spend caps")
	_ = c.MarkFlagRequired("reason")
	return c
}
