package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/queue"
)

func jobsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "jobs", Short: "List, show, cancel, replay and follow jobs of any org",
		Example: "  llmguard jobs list --status failed --since 24h\n" +
			"  llmguard jobs get job_puyzj01m7x3vb350ckcmq65wwmswwsz",
		Long: "For operators. Callers use GET /v1/jobs for their own jobs.\n\n" + adminHelp,
	}
	c.AddCommand(jobsListCommand(), jobsGetCommand(), jobsCancelCommand(), jobsReplayCommand(), jobsWatchCommand())
	return c
}

// jobList is the API's list of jobs.
type jobList struct {
	Data    []jobLine `json:"data"`
	HasMore bool      `json:"has_more"`
}

func (a *adminClient) jobs(c *cobra.Command, path string, limit int) (l jobList, err error) {
	if limit < 1 || limit > 1000 {
		return l, misused("--limit %d: expected 1 to 1000", limit)
	}
	return l, a.ask(c.Context(), http.MethodGet, path, nil, &l)
}

func (a *adminClient) job(ctx context.Context, id, org string) (l jobLine, err error) {
	return l, a.ask(ctx, http.MethodGet, pathOf("jobs", id)+"?"+query("org", org), nil, &l)
}

func jobsListCommand() *cobra.Command {
	var f usageFlags
	var user, model, state string
	var since time.Duration
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List jobs, newest first", Args: cobra.NoArgs,
		Example: "  llmguard jobs list --status failed --since 24h\n" +
			"  llmguard jobs list --org acme --user alice -o json | jq '.[].id'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		from := ""
		if since > 0 {
			from = time.Now().Add(-since).UTC().Format(time.RFC3339Nano)
		}
		if state != "" && !slices.Contains(states, queue.State(state)) {
			return misused("--status %s: expected one of %s", state, strings.Trim(fmt.Sprint(states), "[]"))
		}
		return f.run(c, func(a *adminClient) error {
			path := "/jobs?" + query("org", f.org, "user", user, "model", model, "status", state, "since", from, "limit",
				strconv.Itoa(limit))
			l, err := a.jobs(c, path, limit)
			if err != nil {
				return err
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no jobs")
			}
			if l.HasMore {
				fmt.Fprintf(c.ErrOrStderr(), "showing the newest %d; use --limit to list more\n", len(l.Data))
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return jobTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	fl := c.Flags()
	fl.StringVar(&user, "user", "", "only this user")
	fl.StringVar(&model, "model", "", "only this model, as named in the request")
	fl.StringVar(&state, "status", "", "only this status: queued, running, succeeded, failed, cancelled or expired")
	fl.DurationVar(&since, "since", 0, "only jobs submitted within this period, such as 90m or 24h")
	fl.IntVar(&limit, "limit", 50, "maximum number of jobs, 1 to 1000")
	return c
}

var states = []queue.State{queue.Queued, queue.Running, queue.Succeeded, queue.Failed, queue.Cancelled, queue.Expired}

func jobsGetCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "get ID", Short: "Show the status, queue position, attempts and cost of a job", Args: cobra.ExactArgs(1),
		Example: "  llmguard jobs get job_puyzj01m7x3vb350ckcmq65wwmswwsz",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			l, err := a.job(c.Context(), args[0], f.org)
			if err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l, func(w io.Writer) error { return jobDetails(w, &l) })
		})
	}
	f.add(c, listFormats...)
	return c
}

// jobsAct returns a command that acts on jobs and then prints them. If one fails, it prints those before it.
func jobsAct(use, short, example string,
	act func(c *cobra.Command, a *adminClient, ids []string, org string) ([]jobLine, error),
) *cobra.Command {
	var f usageFlags
	c := &cobra.Command{Use: use, Short: short, Example: example, Args: cobra.MinimumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			out, err := act(c, a, args, f.org)
			if err != nil && len(out) == 0 {
				return err
			}
			shown := render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return jobTable(w, out) })
			return cmp.Or(err, shown)
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	return c
}

// order returns the body of a request that changes something.
func (a *adminClient) order() map[string]any {
	if a.reason == "" {
		return map[string]any{}
	}
	return map[string]any{"reason": a.reason}
}

// cancelPatience is how long cancel waits for workers to stop all the named jobs.
const cancelPatience = 3 * time.Second

func jobsCancelCommand() *cobra.Command {
	return jobsAct("cancel ID...", "Cancel jobs (running ones when their upstream call stops)",
		"  llmguard jobs list --status queued --user bob -o json | jq -r '.[].id' | xargs -r llmguard jobs cancel",
		func(c *cobra.Command, a *adminClient, ids []string, org string) ([]jobLine, error) {
			var out []jobLine
			for _, id := range ids {
				j, err := a.job(c.Context(), id, org)
				if err == nil {
					err = a.ask(c.Context(), http.MethodPost, pathOf("orgs", j.Org, "jobs", j.ID, "cancel"), a.order(), nil)
				}
				if err != nil {
					return out, errors.Join(err, a.untilEnded(c.Context(), out))
				}
				out = append(out, j)
			}
			return out, a.untilEnded(c.Context(), out)
		})
}

// untilEnded polls jobs until all have ended, or cancelPatience has passed.
func (a *adminClient) untilEnded(ctx context.Context, jobs []jobLine) (err error) {
	for end := time.Now().Add(cancelPatience); ; {
		open := false
		for i := range jobs {
			jobs[i], err = a.job(ctx, jobs[i].ID, jobs[i].Org)
			if err != nil {
				return err
			}
			open = open || !jobs[i].State.Terminal()
		}
		if !open || time.Now().After(end) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func jobsReplayCommand() *cobra.Command {
	return jobsAct("replay ID...", "Queue dead letters again, each as a new job",
		"  llmguard queue dead\n  llmguard jobs replay job_puyzj01m7x3vb350ckcmq65wwmswwsz",
		func(c *cobra.Command, a *adminClient, ids []string, org string) ([]jobLine, error) {
			out := []jobLine{}
			for _, id := range ids {
				old, err := a.job(c.Context(), id, org)
				if err != nil {
					return out, err
				}
				var made admin.Job
				if err := a.ask(c.Context(), http.MethodPost, pathOf("jobs", old.ID, "replay"), a.order(), &made); err != nil {
					return out, fmt.Errorf("job %s is %s and was not replayed: %w. List dead letters with `llmguard queue dead`", old.ID,
						old.State, err)
				}
				j, err := a.job(c.Context(), made.ID, made.Org)
				if err != nil {
					return out, err
				}
				out = append(out, j)
			}
			return out, nil
		})
}

func jobsWatchCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "watch ID", Short: "Follow a job until it ends", Args: cobra.ExactArgs(1),
		Long: "Prints the job's states to standard error and, with --config, its response to standard output. The response belongs to the\n" +
			"caller, so the admin API does not return it. The exit code is 1 unless the job succeeds.\n\n" +
			adminHelp,
		Example: "  llmguard jobs watch job_puyzj01m7x3vb350ckcmq65wwmswwsz\n" +
			"  llmguard jobs watch job_puyzj01m7x3vb350ckcmq65wwmswwsz -c llmguard.yaml > answer.json",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error { return a.follow(c, args[0], f.org) })
	}
	f.add(c)
	return c
}

// follow prints a job's output as it arrives. It returns an error unless the job succeeds, so
// that scripts notice.
func (a *adminClient) follow(c *cobra.Command, id, org string) error {
	w, notes := c.OutOrStdout(), c.ErrOrStderr()
	var at admin.JobEvent
	wrote := false
	err := a.lines(c.Context(), pathOf("jobs", id, "events")+"?"+query("org", org), func(line json.RawMessage) error {
		before := at
		at = admin.JobEvent{}
		if err := json.Unmarshal(line, &at); err != nil {
			return err
		}
		if at.Attempt != before.Attempt && wrote {
			fmt.Fprintln(notes, "this attempt failed; discard its output, another attempt starts")
			wrote = false
		}
		if at.Status != before.Status {
			fmt.Fprintf(notes, "%s %s\n", at.At.Format(time.TimeOnly), at.Status)
		}
		data, err := base64.StdEncoding.DecodeString(at.Data)
		if err != nil || len(data) == 0 {
			return err
		}
		wrote = true
		_, err = w.Write(data)
		return err
	})
	switch {
	case err != nil:
		return err
	case !at.Status.Terminal():
		return fmt.Errorf("lost the connection while job %s was %s", escape.Text(id), at.Status)
	case at.Status == queue.Succeeded:
		return nil
	case at.Error != "":
		return fmt.Errorf("job %s is %s: %s", escape.Text(id), at.Status, escape.Text(at.Error))
	}
	return fmt.Errorf("job %s is %s", escape.Text(id), at.Status)
}
