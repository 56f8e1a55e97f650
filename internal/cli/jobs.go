package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
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
	o := &office{cfg: cfg, orgs: orgs, rdb: rdb}
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
		Long: "Works on the queue in Redis itself, for operators. Callers have GET /v1/jobs for their own.",
	}
	c.AddCommand(jobsListCommand(), jobsGetCommand(), jobsCancelCommand(), jobsReplayCommand(), jobsWatchCommand())
	return c
}

// jobsSub is a command of jobs: run gets an open queue.
func jobsSub(use, short, example string, args cobra.PositionalArgs, formats []string, run func(*cobra.Command, *usageFlags, *office, []string) error) *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: args,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := f.openOffice(c.Context())
			if err != nil {
				return err
			}
			defer o.Close()
			return run(c, &f, o, args)
		},
	}
	f.add(c, formats...)
	return c
}

func jobsListCommand() *cobra.Command {
	var want queue.Filter
	var state string
	var since time.Duration
	var limit int
	c := jobsSub("list", "List jobs, the newest first", "  llmguard jobs list --status failed --since 24h\n  llmguard jobs list --org acme --user alice -o json | jq '.[].id'",
		cobra.NoArgs, listFormats, func(c *cobra.Command, f *usageFlags, o *office, _ []string) error {
			if want.State = queue.State(state); state != "" && !slices.Contains(states, want.State) {
				return fmt.Errorf("--status %s: expected one of %s", state, strings.Trim(fmt.Sprint(states), "[]"))
			}
			if limit < 1 || limit > 1000 {
				return fmt.Errorf("--limit %d: expected 1 to 1000", limit)
			}
			if since > 0 {
				want.Since = time.Now().Add(-since)
			}
			jobs, more, err := o.list(c.Context(), want, limit)
			if err != nil {
				return err
			}
			notes := c.ErrOrStderr()
			if len(jobs) == 0 {
				fmt.Fprintln(notes, "no jobs")
			}
			if more {
				fmt.Fprintf(notes, "these are the newest %d; --limit lists more\n", len(jobs))
			}
			return render(c.OutOrStdout(), f.output, jobs, func(w io.Writer) error { return jobTable(w, jobs) })
		})
	fl := c.Flags()
	fl.StringVar(&want.User, "user", "", "only this user's")
	fl.StringVar(&want.Model, "model", "", "only of this model, as the request named it")
	fl.StringVar(&state, "status", "", "only queued, running, succeeded, failed, cancelled or expired ones")
	fl.DurationVar(&since, "since", 0, "only those put so long ago or later, such as 90m or 24h")
	fl.IntVar(&limit, "limit", 50, "how many, 1 to 1000")
	return c
}

var states = []queue.State{queue.Queued, queue.Running, queue.Succeeded, queue.Failed, queue.Cancelled, queue.Expired}

// list merges the orgs' newest jobs.
func (o *office) list(ctx context.Context, want queue.Filter, limit int) (out []jobLine, more bool, err error) {
	out = []jobLine{}
	for _, org := range o.orgs {
		after := ""
		for {
			page, err := o.List(ctx, org, want, after, limit)
			if err != nil {
				return nil, false, err
			}
			for _, j := range page.Jobs {
				out = append(out, lineOf(j))
			}
			if after = page.Next; !page.More || len(page.Jobs) == limit {
				more = more || page.More
				break
			}
		}
	}
	slices.SortStableFunc(out, func(a, b jobLine) int { return b.Created.Compare(a.Created) })
	if len(out) > limit {
		out, more = out[:limit], true
	}
	return out, more, nil
}

func jobsGetCommand() *cobra.Command {
	return jobsSub("get ID", "Show a job: state, place, attempts, what it holds or cost", "  llmguard jobs get job_puyzj01m7x3vb350ckcmq65wwmswwsz",
		cobra.ExactArgs(1), listFormats, func(c *cobra.Command, f *usageFlags, o *office, args []string) error {
			j, err := o.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			l := lineOf(j)
			if j.State == queue.Queued {
				ahead, eta, err := o.Position(c.Context(), j)
				if err != nil {
					return err
				}
				seconds := int64(eta.Round(time.Second) / time.Second)
				l.Ahead, l.ETA = &ahead, &seconds
			}
			return render(c.OutOrStdout(), f.output, l, func(w io.Writer) error { return jobDetails(w, &l) })
		})
}

// cancelPatience is for the workers of all jobs named to stop them.
const cancelPatience = 3 * time.Second

// reasoned gives a command that changes something --reason.
func reasoned(c *cobra.Command) *cobra.Command {
	c.Flags().String("reason", "", "why; one line, kept in the audit")
	return c
}

// order is what such a command sends.
func order(c *cobra.Command) map[string]any {
	if why, _ := c.Flags().GetString("reason"); why != "" {
		return map[string]any{"reason": why}
	}
	return map[string]any{}
}

func jobsCancelCommand() *cobra.Command {
	return reasoned(jobsSub("cancel ID...", "Cancel jobs: waiting ones at once, running ones as soon as they stop", "  llmguard jobs list --status queued --user bob -o json | jq -r '.[].id' | xargs llmguard jobs cancel",
		cobra.MinimumNArgs(1), listFormats, func(c *cobra.Command, f *usageFlags, o *office, args []string) error {
			jobs := make([]*queue.Job, len(args))
			for i, id := range args {
				j, err := o.find(c.Context(), id)
				if err != nil {
					return err
				}
				if err := o.api.ask(c.Context(), http.MethodPost, pathOf("orgs", j.Org, "jobs", j.ID, "cancel"), order(c), nil); err != nil {
					return err
				}
				if jobs[i], err = o.Job(c.Context(), j.Org, j.ID); err != nil {
					return err
				}
			}
			ctx, stop := context.WithTimeout(c.Context(), cancelPatience)
			defer stop()
			out := []jobLine{}
			for _, j := range jobs {
				if ended, err := o.Ended(ctx, j); err == nil {
					j = ended
				}
				out = append(out, lineOf(j))
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return jobTable(w, out) })
		}))
}

func jobsReplayCommand() *cobra.Command {
	return reasoned(jobsSub("replay ID...", "Put dead letters into the queue again, each as a new job", "  llmguard queue dead\n  llmguard jobs replay job_puyzj01m7x3vb350ckcmq65wwmswwsz",
		cobra.MinimumNArgs(1), listFormats, func(c *cobra.Command, f *usageFlags, o *office, args []string) error {
			out := []jobLine{}
			for _, id := range args {
				old, err := o.find(c.Context(), id)
				if err != nil {
					return err
				}
				var made admin.Job
				if err := o.api.ask(c.Context(), http.MethodPost, pathOf("jobs", old.ID, "replay"), order(c), &made); err != nil {
					return fmt.Errorf("job %s is %s and was not replayed: %w; `llmguard queue dead` lists dead letters", old.ID, old.State, err)
				}
				j, err := o.Job(c.Context(), made.Org, made.ID)
				if err != nil {
					return err
				}
				out = append(out, lineOf(j))
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return jobTable(w, out) })
		}))
}

func jobsWatchCommand() *cobra.Command {
	return jobsSub("watch ID", "Follow a job until it has ended; its answer goes to the output, its states to standard error",
		"  llmguard jobs watch job_puyzj01m7x3vb350ckcmq65wwmswwsz > answer.json", cobra.ExactArgs(1), nil,
		func(c *cobra.Command, _ *usageFlags, o *office, args []string) error {
			j, err := o.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			return o.follow(c.Context(), j, c.OutOrStdout(), c.ErrOrStderr())
		})
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
