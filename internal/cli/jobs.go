package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/admin"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/top"
)

// office is an open queue: what an operator works on.
type office struct {
	*queue.Queue
	cfg   *config.Config
	file  *config.Config // cfg without the records of Redis
	orgs  []string
	pools []queue.Pool
	rdb   redis.UniversalClient
	api   *adminClient // what changes something, and records that
}

func (o *office) Close() { _ = o.rdb.Close() }

// openOffice opens the configured queue for the orgs asked for: all when none.
func (f *usageFlags) openOffice(ctx context.Context) (*office, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, err
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return nil, err
	}
	file := cfg
	if cfg, err = app.Effective(ctx, file, rdb, slog.New(slog.DiscardHandler)); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	orgs, err := pickOrgs(orgIDs(cfg), f.org)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	o := &office{cfg: cfg, file: file, orgs: orgs, rdb: rdb}
	if o.api, err = localClient(ctx, file, rdb); err != nil {
		o.Close()
		return nil, err
	}
	if o.Queue, o.pools, err = app.Queue(ctx, cfg, rdb, slog.New(slog.DiscardHandler)); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// find returns a job of any of the orgs.
func (o *office) find(ctx context.Context, id string) (*queue.Job, error) {
	for _, org := range o.orgs {
		j, err := o.Job(ctx, org, id)
		if !errors.Is(err, queue.ErrNotFound) {
			return j, err
		}
	}
	return nil, fmt.Errorf("no job %s; it is forgotten %s after its end (queue.result_ttl)", top.Printable(id), o.cfg.Queue.ResultTTL)
}

func jobsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "jobs", Short: "List, look at, cancel, replay and follow jobs of any org",
		Long: "For operators. Callers have GET /v1/jobs for their own.\n\n" + adminHelp,
	}
	c.AddCommand(jobsListCommand(), jobsGetCommand(), jobsCancelCommand(), jobsReplayCommand(), jobsWatchCommand())
	return c
}

// jobList is a list of jobs as the API answers it.
type jobList struct {
	Data    []jobLine `json:"data"`
	HasMore bool      `json:"has_more"`
}

func (a *adminClient) jobs(c *cobra.Command, path string, limit int) (l jobList, err error) {
	if limit < 1 || limit > 1000 {
		return l, fmt.Errorf("--limit %d: expected 1 to 1000", limit)
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
		Use: "list", Short: "List jobs, the newest first", Args: cobra.NoArgs,
		Example: "  llmguard jobs list --status failed --since 24h\n  llmguard jobs list --org acme --user alice -o json | jq '.[].id'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		from := ""
		if since > 0 {
			from = time.Now().Add(-since).UTC().Format(time.RFC3339Nano)
		}
		if state != "" && !slices.Contains(states, queue.State(state)) {
			return fmt.Errorf("--status %s: expected one of %s", state, strings.Trim(fmt.Sprint(states), "[]"))
		}
		return f.run(c, func(a *adminClient) error {
			path := "/jobs?" + query("org", f.org, "user", user, "model", model, "status", state, "since", from, "limit", strconv.Itoa(limit))
			l, err := a.jobs(c, path, limit)
			if err != nil {
				return err
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no jobs")
			}
			if l.HasMore {
				fmt.Fprintf(c.ErrOrStderr(), "these are the newest %d; --limit lists more\n", len(l.Data))
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return jobTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	fl := c.Flags()
	fl.StringVar(&user, "user", "", "only this user's")
	fl.StringVar(&model, "model", "", "only of this model, as the request named it")
	fl.StringVar(&state, "status", "", "only queued, running, succeeded, failed, cancelled or expired ones")
	fl.DurationVar(&since, "since", 0, "only jobs submitted within this period, such as 90m or 24h")
	fl.IntVar(&limit, "limit", 50, "how many, 1 to 1000")
	return c
}

var states = []queue.State{queue.Queued, queue.Running, queue.Succeeded, queue.Failed, queue.Cancelled, queue.Expired}

func jobsGetCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "get ID", Short: "Show a job: state, place, attempts, what it holds or cost", Args: cobra.ExactArgs(1),
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

// jobsAct is a command that does something with jobs and shows them then.
func jobsAct(use, short, example string, act func(c *cobra.Command, a *adminClient, ids []string, org string) ([]jobLine, error)) *cobra.Command {
	var f usageFlags
	c := &cobra.Command{Use: use, Short: short, Example: example, Args: cobra.MinimumNArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			out, err := act(c, a, args, f.org)
			if err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return jobTable(w, out) })
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	return c
}

// order is the body of a request that changes something.
func (a *adminClient) order() map[string]any {
	if a.reason == "" {
		return map[string]any{}
	}
	return map[string]any{"reason": a.reason}
}

// cancelPatience is for the workers of all jobs named to stop them.
const cancelPatience = 3 * time.Second

func jobsCancelCommand() *cobra.Command {
	return jobsAct("cancel ID...", "Cancel jobs: waiting ones at once, running ones as soon as they stop",
		"  llmguard jobs list --status queued --user bob -o json | jq -r '.[].id' | xargs -r llmguard jobs cancel",
		func(c *cobra.Command, a *adminClient, ids []string, org string) ([]jobLine, error) {
			out := make([]jobLine, len(ids))
			for i, id := range ids {
				j, err := a.job(c.Context(), id, org)
				if err != nil {
					return nil, err
				}
				if err := a.ask(c.Context(), http.MethodPost, pathOf("orgs", j.Org, "jobs", j.ID, "cancel"), a.order(), nil); err != nil {
					return nil, err
				}
				out[i] = j
			}
			return out, a.untilEnded(c.Context(), out)
		})
}

// untilEnded looks at jobs until all have ended, for a while.
func (a *adminClient) untilEnded(ctx context.Context, jobs []jobLine) (err error) {
	for end := time.Now().Add(cancelPatience); ; {
		open := false
		for i := range jobs {
			if jobs[i], err = a.job(ctx, jobs[i].ID, jobs[i].Org); err != nil {
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
	return jobsAct("replay ID...", "Put dead letters into the queue again, each as a new job", "  llmguard queue dead\n  llmguard jobs replay job_puyzj01m7x3vb350ckcmq65wwmswwsz",
		func(c *cobra.Command, a *adminClient, ids []string, org string) ([]jobLine, error) {
			out := []jobLine{}
			for _, id := range ids {
				old, err := a.job(c.Context(), id, org)
				if err != nil {
					return nil, err
				}
				var made admin.Job
				if err := a.ask(c.Context(), http.MethodPost, pathOf("jobs", old.ID, "replay"), a.order(), &made); err != nil {
					return nil, fmt.Errorf("job %s is %s and was not replayed: %w; `llmguard queue dead` lists dead letters", old.ID, old.State, err)
				}
				j, err := a.job(c.Context(), made.ID, made.Org)
				if err != nil {
					return nil, err
				}
				out = append(out, j)
			}
			return out, nil
		})
}

func jobsWatchCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "watch ID", Short: "Follow a job until it has ended; its answer goes to the output, its states to standard error", Args: cobra.ExactArgs(1),
		Long:    "The answer is the caller's: it is read from the Redis of the configuration alone, and the admin API shows none.",
		Example: "  llmguard jobs watch job_puyzj01m7x3vb350ckcmq65wwmswwsz > answer.json",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		o, err := f.openOffice(c.Context())
		if err != nil {
			return err
		}
		defer o.Close()
		j, err := o.find(c.Context(), args[0])
		if err != nil {
			return err
		}
		return o.follow(c.Context(), j, c.OutOrStdout(), c.ErrOrStderr())
	}
	f.direct(c)
	return c
}

// follow writes a job's answer as it comes. A job that does not succeed is an
// error, so that a script notices.
func (o *office) follow(ctx context.Context, j *queue.Job, w, notes io.Writer) error {
	watch := o.Follow(j)
	defer watch.Close()
	attempt, wrote := 0, false
	for {
		e, err := watch.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if e.Attempt != attempt && wrote {
			fmt.Fprintln(notes, "the attempt died; what was written so far is void, another begins")
		}
		attempt = e.Attempt
		switch e.Kind {
		case queue.Changed:
			fmt.Fprintf(notes, "%s %s\n", time.Now().UTC().Format(time.TimeOnly), e.State)
		case queue.Bytes:
			wrote = true
			if _, err := w.Write(e.Data); err != nil {
				return err
			}
		}
	}
	end, err := o.Job(ctx, j.Org, j.ID)
	if err != nil {
		return err
	}
	if end.State != queue.Succeeded {
		return fmt.Errorf("job %s is %s%s", end.ID, end.State, because(end))
	}
	return nil
}

func because(j *queue.Job) string {
	if j.Error == nil {
		return ""
	}
	return ": " + top.Printable(j.Error.Message)
}
