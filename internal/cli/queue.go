package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
)

func queueCommand() *cobra.Command {
	var f usageFlags
	var pool string
	var most int
	c := &cobra.Command{
		Use: "queue", Short: "Show the queue: jobs by pool and user, quota use, what is paused and why",
		Args: cobra.NoArgs,
		Long: adminHelp,
		Example: "  llmguard queue\n" +
			"  watch -n 2 llmguard queue --pool gpt\n" +
			"  llmguard queue -o json | jq '.[] | select(.oldest_seconds > 60)'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.QueuePool `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/queue?"+query("pool", pool, "org", f.org), nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return queueTable(w, l.Data, most) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().StringVar(&pool, "pool", "", "only this pool")
	c.AddCommand(deadCommand(), pausePoolCommand(), resumePoolCommand())
	c.Flags().IntVar(&most, "flows", 10, "maximum number of flows in the table, longest wait first")
	return c
}

// query builds a query from pairs of names and values, without empty values.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" && (pairs[i] != "org" || pairs[i+1] != "all") {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q.Encode()
}

func queueTable(w io.Writer, views []admin.QueuePool, most int) error {
	g := grid{
		head: []string{
			"pool", "connected", "async", "batch", "running", "rpm", "tpm", "blocked", "paused", "oldest",
			"dead",
		},
		numbers: []bool{false, true, true, true, true, true, true, true, true, true, true},
	}
	for i := range views {
		v := &views[i]
		g.add(v.Pool, whole(v.Waiting["interactive"]), whole(v.Waiting["async"]), whole(v.Waiting["batch"]), whole(v.Running),
			quotaText(v.RPM), quotaText(v.TPM), pauseText(v), strconv.Itoa(len(v.Parked)), span(v.Oldest), whole(v.Dead))
	}
	if err := g.write(w); err != nil {
		return err
	}
	for i := range views {
		if err := flowTable(w, &views[i], most); err != nil {
			return err
		}
	}
	return nil
}

// quotaText formats the use of a quota: 40/60.
func quotaText(q admin.QueueQuota) string {
	if q.Limit == 0 {
		return whole(q.Used)
	}
	return whole(q.Used) + "/" + whole(q.Limit)
}

// pauseText formats whether an operator has paused a pool, or for how long the provider blocks it, or one of
// its models.
func pauseText(v *admin.QueuePool) string {
	if v.Paused {
		return "by operator"
	}
	if v.Model == "" {
		return span(&v.Blocked)
	}
	return span(&v.Blocked) + " (" + v.Model + ")"
}

func span(seconds *float64) string {
	if seconds == nil || *seconds <= 0 {
		return "-"
	}
	return figures.Age(time.Duration(*seconds * float64(time.Second)))
}

func flowTable(w io.Writer, v *admin.QueuePool, most int) error {
	if len(v.Flows)+len(v.Parked) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s\n", v.Pool)
	parked := map[string]string{} // by "org user", or "org " for the whole org
	for _, p := range v.Parked {
		what := "user"
		switch {
		case p.Org == "":
			what = "pool"
		case p.User == "":
			what = "org"
		}
		if p.What != "all" {
			what += "'s " + p.What
		}
		parked[p.Org+" "+p.User] = what + ", for " + figures.Lasting(max(time.Until(p.Until), 0))
	}
	g := grid{
		indent: "  ", head: []string{"org", "user", "class", "jobs", "high", "low", "tokens", "oldest", "paused"},
		numbers: []bool{false, false, false, true, true, true, true, true, false},
	}
	for i, f := range v.Flows {
		if i == max(most, 0) {
			break
		}
		rest := cmp.Or(parked[f.Org+" "], parked[" "])
		if own := parked[f.Org+" "+f.User]; own != "" {
			rest = own
		}
		g.add(f.Org, f.User, f.Class, whole(f.Jobs), whole(f.High), whole(f.Low), whole(f.Tokens), span(&f.Oldest), rest)
	}
	if err := g.write(w); err != nil {
		return err
	}
	if n := len(v.Flows) - most; n > 0 {
		fmt.Fprintf(w, "  and %s more (use --flows)\n", plural(n, "flow"))
	}
	return nil
}

func deadCommand() *cobra.Command {
	var f usageFlags
	var limit int
	c := &cobra.Command{
		Use: "dead", Short: "List dead letters: jobs that failed although their request was valid",
		Args:    cobra.NoArgs,
		Long:    adminHelp,
		Example: "  llmguard queue dead\n  llmguard queue dead -o json | jq -r '.[].id' | xargs -r llmguard jobs replay",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			l, err := a.jobs(c, "/queue/dead?"+query("org", f.org, "limit", strconv.Itoa(limit)), limit)
			if err != nil {
				return err
			}
			if l.HasMore {
				fmt.Fprintf(c.ErrOrStderr(), "a pool has more than %d; use --limit to list more\n", limit)
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no dead letters")
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return jobTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().IntVar(&limit, "limit", 100, "maximum number of jobs per pool, 1 to 1000")
	return c
}

func pausePoolCommand() *cobra.Command {
	return poolCommand(&cobra.Command{
		Use: "pause POOL", Short: "Start no more jobs of a pool until it is resumed; running jobs and live calls continue",
		Example: "  llmguard queue pause openai\n  llmguard queue resume openai",
	}, "pause", func(now *admin.Pause) string { return "pool " + now.Pool + " starts no more jobs" })
}

func resumePoolCommand() *cobra.Command {
	return poolCommand(&cobra.Command{
		Use:     "resume POOL",
		Short:   "End the pauses of a pool now: an operator's, and its provider's, such as after its account has new credit",
		Example: "  llmguard queue\n  llmguard queue resume openai",
	}, "resume", func(was *admin.Pause) string {
		switch {
		case was.Blocked > 0:
			return "pool " + was.Pool + " continues; the pause had " + span(&was.Blocked) + " left"
		case was.Paused:
			return "pool " + was.Pool + " continues"
		}
		return "pool " + was.Pool + " was not paused"
	})
}

// poolCommand completes a command that changes a pool, named by the last part of its path.
func poolCommand(c *cobra.Command, change string, text func(*admin.Pause) string) *cobra.Command {
	var f adminFlags
	c.Args, c.Long = cobra.ExactArgs(1), adminHelp
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			var p admin.Pause
			if err := a.ask(c.Context(), http.MethodPost, pathOf("queue", args[0], change), a.order(), &p); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, p, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, text(&p))
				return err
			})
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	return c
}
