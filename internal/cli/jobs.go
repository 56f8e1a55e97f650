package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/queue"
)

func (a *adminClient) job(ctx context.Context, id, org string) (jobLine, error) {
	return get[jobLine](ctx, a, pathOf("jobs", id)+"?"+query("org", org))
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

// cancelJobs cancels jobs of any org and waits a moment until they have ended.
func cancelJobs(c *cobra.Command, o *operated, a *adminClient) error {
	return o.each(c, func(id string) (jobLine, error) {
		j, err := a.job(c.Context(), id, o.values["org"])
		if err == nil {
			err = a.ask(c.Context(), http.MethodPost, pathOf("orgs", j.Org, "jobs", j.ID, "cancel"), a.order(), nil)
		}
		return j, err
	}, func(jobs []jobLine) error { return a.untilEnded(c.Context(), jobs) })
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

// replayJobs queues dead letters again, and prints the new jobs.
func replayJobs(c *cobra.Command, o *operated, a *adminClient) error {
	org, _ := c.Flags().GetString("org")
	return o.each(c, func(id string) (jobLine, error) {
		old, err := a.job(c.Context(), id, org)
		if err != nil {
			return old, err
		}
		var made admin.Job
		if err := a.ask(c.Context(), http.MethodPost, pathOf("jobs", old.ID, "replay"), a.order(), &made); err != nil {
			return old, fmt.Errorf("job %s is %s and was not replayed: %w. List dead letters with `llmguard queue dead`", old.ID,
				old.State, err)
		}
		return a.job(c.Context(), made.ID, made.Org)
	}, func([]jobLine) error { return nil })
}

// each acts on jobs, then prints them. If one fails, it prints those before it.
func (o *operated) each(c *cobra.Command, act func(id string) (jobLine, error), then func([]jobLine) error) error {
	out := []jobLine{}
	var failed error
	for _, id := range o.args {
		j, err := act(id)
		if err != nil {
			failed = err
			break
		}
		out = append(out, j)
	}
	failed = errors.Join(failed, then(out))
	if failed != nil && len(out) == 0 {
		return failed
	}
	return cmp.Or(failed, o.list(c, reflect.ValueOf(out)))
}

// watchJob prints a job's output as it arrives. It returns an error unless the job succeeds, so that scripts notice.
func watchJob(c *cobra.Command, o *operated, a *adminClient) error {
	id := o.values["job"]
	w, notes := c.OutOrStdout(), c.ErrOrStderr()
	var at admin.JobEvent
	wrote := false
	err := a.lines(c.Context(), o.path(), func(line json.RawMessage) error {
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
			fmt.Fprintf(notes, "%s %s\n", figures.Clock(at.At), at.Status)
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
