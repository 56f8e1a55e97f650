package cli

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

// jobLine is a job as returned by the admin API.
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
