package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/queue"
)

// poolView is a pool for programs.
type poolView struct {
	Pool        string           `json:"pool"`
	Waiting     map[string]int64 `json:"waiting"` // by class
	Tokens      int64            `json:"waiting_tokens"`
	Running     int64            `json:"claimed"`
	Jobs        int64            `json:"open_jobs"`
	Bytes       int64            `json:"open_bytes"`
	MaxJobs     int              `json:"max_jobs"`
	RPM         quotaView        `json:"rpm"`
	TPM         quotaView        `json:"tpm"`
	Concurrency int              `json:"concurrency"` // 0: no limit
	Blocked     float64          `json:"blocked_seconds"`
	Oldest      *float64         `json:"oldest_seconds"` // wait of the oldest job; null: none waits
	Dead        int64            `json:"dead_letters"`
	Flows       []flowView       `json:"flows"`
	Parked      []parkedView     `json:"parked"`
}

type quotaView struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"` // 0: none
}

type flowView struct {
	Org    string  `json:"org"`
	User   string  `json:"user"`
	Class  string  `json:"class"`
	Jobs   int64   `json:"jobs"`
	Tokens int64   `json:"tokens"`
	Oldest float64 `json:"oldest_seconds"`
}

type parkedView struct {
	Org   string    `json:"org"`
	User  string    `json:"user,omitempty"` // none: of the whole org
	What  string    `json:"what"`           // all, model, key, key and model
	Until time.Time `json:"until"`
}

func queueCommand() *cobra.Command {
	var pool string
	var most int
	c := jobsSub("queue", "Show what waits: pools, their quota in use, flows, what is parked, how old it is",
		"  llmguard queue\n  watch -n 2 llmguard queue --pool gpt\n  llmguard queue -o json | jq '.[] | select(.oldest_seconds > 60)'",
		cobra.NoArgs, listFormats, func(c *cobra.Command, f *usageFlags, o *office, _ []string) error {
			views := []poolView{}
			for _, p := range o.pools {
				if pool != "" && p.ID != pool {
					continue
				}
				v, err := o.view(c.Context(), p)
				if err != nil {
					return err
				}
				views = append(views, v)
			}
			if len(views) == 0 {
				return fmt.Errorf("--pool %s: no such pool in the configuration", pool)
			}
			return render(c.OutOrStdout(), f.output, views, func(w io.Writer) error { return queueTable(w, views, most) })
		})
	c.Flags().StringVar(&pool, "pool", "", "only this pool")
	c.AddCommand(deadCommand())
	c.Flags().IntVar(&most, "flows", 10, "how many flows the table shows, the longest waiting first")
	return c
}

func (o *office) view(ctx context.Context, p queue.Pool) (poolView, error) {
	d, err := o.Depth(ctx, p.ID)
	if err != nil {
		return poolView{}, err
	}
	flows, err := o.Waiting(ctx, p.ID)
	if err != nil {
		return poolView{}, err
	}
	parked, err := o.Parked(ctx, p.ID)
	if err != nil {
		return poolView{}, err
	}
	dead, err := o.Dead(ctx, p.ID)
	if err != nil {
		return poolView{}, err
	}
	v := poolView{
		Dead: dead, Pool: p.ID, Waiting: map[string]int64{}, Running: d.Claims, Jobs: d.Jobs, Bytes: d.Bytes, MaxJobs: p.MaxJobs,
		RPM: quotaView{d.Requests, p.RPM}, TPM: quotaView{d.Tokens, p.TPM}, Concurrency: p.Concurrency,
		Blocked: d.Blocked.Seconds(), Flows: []flowView{}, Parked: []parkedView{},
	}
	for class := queue.Interactive; class <= queue.Batch; class++ {
		v.Waiting[class.String()] = d.Waiting[class]
		v.Tokens += d.WaitingTokens[class]
	}
	for _, f := range flows {
		if !o.asked(f.Org) {
			continue
		}
		age := max(time.Since(f.Oldest).Seconds(), 0)
		v.Flows = append(v.Flows, flowView{f.Org, f.User, f.Class.String(), f.Jobs, f.Tokens, age})
		if v.Oldest == nil {
			v.Oldest = &age
		}
	}
	for _, one := range parked {
		if one.Org == "" || o.asked(one.Org) {
			v.Parked = append(v.Parked, parkedView{one.Org, one.User, one.What, one.Until.UTC()})
		}
	}
	return v, nil
}

// asked reports whether an org is among those asked for. Orgs that are no
// longer configured belong to no choice but all.
func (o *office) asked(org string) bool {
	if len(o.orgs) == len(o.cfg.Orgs) {
		return true
	}
	for _, one := range o.orgs {
		if one == org {
			return true
		}
	}
	return false
}

func queueTable(w io.Writer, views []poolView, most int) error {
	g := grid{
		head:    []string{"pool", "connected", "async", "batch", "running", "rpm", "tpm", "blocked", "parked", "oldest", "dead"},
		numbers: []bool{false, true, true, true, true, true, true, true, true, true, true},
	}
	for i := range views {
		v := &views[i]
		g.add(v.Pool, whole(v.Waiting["interactive"]), whole(v.Waiting["async"]), whole(v.Waiting["batch"]), whole(v.Running),
			v.RPM.String(), v.TPM.String(), span(&v.Blocked), strconv.Itoa(len(v.Parked)), span(v.Oldest), whole(v.Dead))
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

// String is how much of a quota is in use: 40/60.
func (q quotaView) String() string {
	if q.Limit == 0 {
		return whole(q.Used)
	}
	return whole(q.Used) + "/" + whole(q.Limit)
}

func span(seconds *float64) string {
	if seconds == nil || *seconds <= 0 {
		return "-"
	}
	return aged(time.Duration(*seconds * float64(time.Second)))
}

func flowTable(w io.Writer, v *poolView, most int) error {
	if len(v.Flows)+len(v.Parked) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s\n", v.Pool)
	parked := map[string]string{} // by "org user", by "org " for all of an org
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
		parked[p.Org+" "+p.User] = what + ", for " + budget.LastingText(max(time.Until(p.Until), 0))
	}
	g := grid{
		indent: "  ", head: []string{"org", "user", "class", "jobs", "tokens", "oldest", "parked"},
		numbers: []bool{false, false, false, true, true, true, false},
	}
	for i, f := range v.Flows {
		if i == max(most, 0) {
			break
		}
		rest := cmp.Or(parked[f.Org+" "], parked[" "])
		if own := parked[f.Org+" "+f.User]; own != "" {
			rest = own
		}
		g.add(f.Org, f.User, f.Class, whole(f.Jobs), whole(f.Tokens), span(&f.Oldest), rest)
	}
	if err := g.write(w); err != nil {
		return err
	}
	if n := len(v.Flows) - most; n > 0 {
		fmt.Fprintf(w, "  and %s more; --flows shows them\n", plural(n, "flow"))
	}
	return nil
}

func deadCommand() *cobra.Command {
	var limit int
	c := jobsSub("dead", "List the dead letters: jobs that failed by no fault of their request, the newest first",
		"  llmguard queue dead\n  llmguard queue dead -o json | jq -r '.[].id' | xargs llmguard jobs replay",
		cobra.NoArgs, listFormats, func(c *cobra.Command, f *usageFlags, o *office, _ []string) error {
			if limit < 1 || limit > 1000 {
				return fmt.Errorf("--limit %d: expected 1 to 1000", limit)
			}
			out := []jobLine{}
			for _, p := range o.pools {
				jobs, more, err := o.DeadLetters(c.Context(), p.ID, "", limit)
				if err != nil {
					return err
				}
				for _, j := range jobs {
					if o.asked(j.Org) {
						out = append(out, lineOf(j))
					}
				}
				if more {
					fmt.Fprintf(c.ErrOrStderr(), "pool %s has more than %d; --limit lists more\n", p.ID, limit)
				}
			}
			if len(out) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no dead letters")
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return jobTable(w, out) })
		})
	c.Flags().IntVar(&limit, "limit", 100, "how many of a pool, 1 to 1000")
	return c
}
