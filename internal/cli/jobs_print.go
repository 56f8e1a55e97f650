package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/top"
)

// jobLine is a job for programs; amounts are nano-USD, times RFC 3339.
type jobLine struct {
	ID       string       `json:"id"`
	State    queue.State  `json:"status"`
	Stopping bool         `json:"cancelling,omitempty"`
	Pool     string       `json:"pool"`
	Class    string       `json:"class"`
	Org      string       `json:"org"`
	User     string       `json:"user"`
	Key      string       `json:"key"`
	Model    string       `json:"model"`
	Endpoint string       `json:"endpoint"`
	Stream   bool         `json:"stream"`
	Tokens   int64        `json:"tokens"`
	Bytes    int64        `json:"bytes"`
	Attempts int          `json:"attempts"`
	Created  time.Time    `json:"created_at"`
	Started  *time.Time   `json:"started_at"`
	Finished *time.Time   `json:"finished_at"`
	Deadline *time.Time   `json:"expires_at"`
	Ahead    *int         `json:"ahead,omitempty"`
	ETA      *int64       `json:"eta_seconds,omitempty"`
	Estimate pricing.Nano `json:"estimated_nano_usd"`
	Charged  pricing.Nano `json:"charged_nano_usd"`
	Status   int          `json:"status_code,omitempty"`
	Code     string       `json:"code,omitempty"`
	Error    string       `json:"error,omitempty"`
}

func lineOf(j *queue.Job) jobLine {
	l := jobLine{
		ID: j.ID, State: j.State, Stopping: j.Cancelling, Pool: j.Pool, Class: j.Class.String(), Org: j.Org, User: j.User, Key: j.Key,
		Model: j.Model, Endpoint: string(j.Endpoint), Stream: j.Stream, Tokens: j.Tokens, Bytes: j.Bytes, Attempts: j.Attempt,
		Created: j.Created.UTC(), Started: moment(j.Started), Finished: moment(j.Finished), Deadline: moment(j.Deadline),
		Estimate: j.Cost, Charged: j.Charged, Status: j.Status, Code: j.Code,
	}
	if j.Error != nil {
		l.Error = j.Error.Message
	}
	return l
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// cost is what a job cost, or holds while it has not ended.
func (l *jobLine) cost() string {
	if l.State.Terminal() {
		return l.Charged.String()
	}
	return l.Estimate.String()
}

// note is why a job ended, or that it is about to.
func (l *jobLine) note() string {
	if l.Stopping {
		return "cancelling"
	}
	return top.Printable(l.Code)
}

func jobTable(w io.Writer, jobs []jobLine) error {
	if len(jobs) == 0 {
		return nil
	}
	g := grid{
		head:    []string{"id", "status", "age", "pool", "class", "org", "user", "model", "tries", "cost", ""},
		numbers: []bool{false, false, true, false, false, false, false, false, true, true, false},
	}
	for i := range jobs {
		l := &jobs[i]
		g.add(l.ID, string(l.State), aged(time.Since(l.Created)), l.Pool, l.Class, l.Org, l.User, top.Printable(l.Model), strconv.Itoa(l.Attempts), l.cost(), l.note())
	}
	return g.write(w)
}

// aged words a span for people: 12s, 5m, 3h, 2d.
func aged(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func jobDetails(w io.Writer, l *jobLine) error {
	g := grid{numbers: []bool{false, false}}
	at := func(name string, t *time.Time) {
		if t != nil {
			g.add(name, t.Format(time.DateTime)+" UTC")
		}
	}
	g.add("job", l.ID)
	g.add("status", string(l.State)+map[bool]string{true: ", cancelling"}[l.Stopping])
	if l.Ahead != nil {
		g.add("ahead", fmt.Sprintf("%d, about %s", *l.Ahead, budget.LastingText(time.Duration(*l.ETA)*time.Second)))
	}
	if l.Error != "" {
		g.add("error", top.Printable(l.Error)+" ("+top.Printable(l.Code)+")")
	}
	g.add("owner", l.Org+" / "+l.User+" / "+l.Key)
	g.add("call", l.Endpoint+", "+top.Printable(l.Model)+map[bool]string{true: ", streamed"}[l.Stream])
	g.add("pool", l.Pool+", "+l.Class)
	g.add("size", fmt.Sprintf("%d bytes, %d tokens", l.Bytes, l.Tokens))
	at("created", &l.Created)
	at("started", l.Started)
	at("finished", l.Finished)
	if !l.State.Terminal() {
		at("expires", l.Deadline)
	}
	g.add("attempts", strconv.Itoa(l.Attempts))
	g.add(map[bool]string{true: "cost", false: "at most"}[l.State.Terminal()], l.cost())
	if l.Status != 0 {
		g.add("answer", fmt.Sprintf("HTTP %d", l.Status))
	}
	return g.write(w)
}
