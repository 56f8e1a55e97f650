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
	"reflect"
	"strconv"
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

func cancelBatches(c *cobra.Command, o *operated, a *adminClient) error {
	out := []admin.BatchLine{}
	for _, id := range o.args {
		b, err := get[admin.BatchLine](c.Context(), a, pathOf("batches", id))
		if err == nil {
			o.values["org"], o.values["user"], o.values["batch"] = b.Org, b.User, id
			_, err = o.ask(c, a)
		}
		if err == nil {
			b, err = get[admin.BatchLine](c.Context(), a, pathOf("batches", id))
		}
		if err != nil {
			return fmt.Errorf("batch %s: %w", escape.Text(id), err)
		}
		out = append(out, b)
	}
	return o.list(c, reflect.ValueOf(out))
}

type jobLine = admin.JobLine

// jobCost returns what a job cost, or what it holds until it ends.
func jobCost(w io.Writer, l *jobLine) string {
	if l.State.Terminal() {
		return usd(w, l.Charged)
	}
	return usd(w, l.Estimate)
}

// jobNote returns why a job ended, or that it is stopping.
func jobNote(l *jobLine) string {
	if l.Stopping {
		return "cancelling"
	}
	return escape.Text(l.Code)
}

var jobColumns = columnsOf(reflect.TypeFor[jobLine](), "id:id", "status:status", "created_at:age;age", "pool:pool",
	"class:class", "org:org", "user:user", "model:model", "attempts:tries")

func jobTable(w io.Writer, jobs []jobLine) error {
	if len(jobs) == 0 {
		return nil
	}
	g := gridOf(w, jobs, jobColumns)
	g.head, g.numbers = append(g.head, "cost", ""), append(g.numbers, true, false)
	for i := range jobs {
		g.rows[i] = append(g.rows[i], jobCost(w, &jobs[i]), jobNote(&jobs[i]))
	}
	return g.write(w)
}

func jobDetails(w io.Writer, l *jobLine) error {
	g := grid{numbers: []bool{false, false}}
	at := func(name string, t *time.Time) {
		if t != nil {
			g.add(name, figures.Second(*t))
		}
	}
	g.add("job", l.ID)
	g.add("status", string(l.State)+map[bool]string{true: ", cancelling"}[l.Stopping])
	if l.Ahead != nil {
		about := "start unknown"
		if l.ETA != nil {
			about = "about " + figures.Lasting(time.Duration(*l.ETA)*time.Second)
		}
		g.add("ahead", fmt.Sprintf("%d, %s", *l.Ahead, about))
		g.add("waiting for", escape.Text(l.WaitingFor))
	}
	if l.Error != "" {
		g.add("error", escape.Text(l.Error)+" ("+escape.Text(l.Code)+")")
	}
	g.add("owner", l.Org+" / "+l.User+" / "+l.Key)
	g.add("request", l.Endpoint+", "+escape.Text(l.Model)+map[bool]string{true: ", streamed"}[l.Stream])
	g.add("pool", l.Pool+", "+l.Class)
	g.add("priority", l.Priority)
	at("deadline", l.StartBy)
	g.add("size", fmt.Sprintf("%d bytes, %d tokens", l.Bytes, l.Tokens))
	at("created", &l.Created)
	at("started", l.Started)
	at("finished", l.Finished)
	if !l.State.Terminal() && l.StartBy == nil {
		at("expires", l.Deadline)
	}
	at("next attempt", l.Next)
	g.add("attempts", strconv.Itoa(l.Attempts))
	g.add(map[bool]string{true: "cost", false: "max cost"}[l.State.Terminal()], jobCost(w, l))
	if l.ReplayOf != "" {
		g.add("replay of", l.ReplayOf)
	}
	if l.ReplayedAs != "" {
		g.add("replayed as", l.ReplayedAs)
	}
	if l.Status != 0 {
		g.add("response", fmt.Sprintf("HTTP %d", l.Status))
	}
	return g.write(w)
}
