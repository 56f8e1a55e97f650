package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
)

// queueWorker prints the queue, with at most --flows flows.
func queueWorker(c *cobra.Command) worker {
	var most int
	c.Flags().IntVar(&most, "flows", 10, "maximum number of flows in the table, longest wait first")
	return func(c *cobra.Command, o *operated, a *adminClient) error {
		pools, err := list[admin.QueuePool](c.Context(), a, o.path())
		if err != nil {
			return err
		}
		return render(c.OutOrStdout(), o.output, pools, func(w io.Writer) error { return queueTable(w, pools, most) })
	}
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
			quotaText(v.RPM), tokensText(v), pauseText(v), strconv.Itoa(len(v.Parked)), span(v.Oldest), whole(v.Dead))
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

// tokensText formats the use of a pool's tokens; of input and output if they count apart.
func tokensText(v *admin.QueuePool) string {
	if v.ITPM == nil {
		return quotaText(v.TPM)
	}
	return quotaText(*v.ITPM) + " in, " + quotaText(*v.OTPM) + " out"
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

var flowColumns = columnsOf(reflect.TypeFor[admin.QueueFlow](), "org:org", "user:user", "class:class", "jobs:jobs",
	"high:high", "low:low", "tokens:tokens")

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
	g := gridOf(w, v.Flows[:min(len(v.Flows), max(most, 0))], flowColumns)
	g.indent, g.head, g.numbers = "  ", append(g.head, "oldest", "paused"), append(g.numbers, true, false)
	for i := range g.rows {
		f := &v.Flows[i]
		rest := cmp.Or(parked[f.Org+" "+f.User], parked[f.Org+" "], parked[" "])
		g.rows[i] = append(g.rows[i], span(&f.Oldest), rest)
	}
	if err := g.write(w); err != nil {
		return err
	}
	if n := len(v.Flows) - most; n > 0 {
		fmt.Fprintf(w, "  and %s more (use --flows)\n", plural(n, "flow"))
	}
	return nil
}

// resumePool prints what the pause was.
func resumePool(c *cobra.Command, o *operated, a *adminClient) error {
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	was := answer.(*admin.Pause)
	text := "pool " + was.Pool + " was not paused"
	switch {
	case was.Blocked > 0:
		text = "pool " + was.Pool + " continues; the pause had " + span(&was.Blocked) + " left"
	case was.Paused:
		text = "pool " + was.Pool + " continues"
	}
	return o.say(c, was, text)
}
