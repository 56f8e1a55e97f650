package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/escape"
)

// Types returns the event types: OpenAI's names for batches and responses, and our own for
// jobs.
func Types() []string {
	return []string{
		"batch.completed", "batch.failed", "batch.expired", "batch.cancelled",
		"response.completed", "response.failed", "response.cancelled", "response.incomplete",
		"job.succeeded", "job.failed", "job.cancelled", "job.expired",
		LimitAlert, BrakeFired, RaiseRequested, RaiseDecided, RunReached,
	}
}

// Events that are not the end of an object.
const (
	LimitAlert     = "alert.limit"           // a limit's usage has reached a threshold
	BrakeFired     = "brake.fired"           // a brake fired for a run, a user or another subject
	RaiseRequested = "limit_request.created" // a caller requests more of a limit
	RaiseDecided   = "limit_request.decided" // the request was approved, denied, withdrawn, or has expired
	RunReached     = "run.budget_reached"    // a call of a run was refused because of the run's amount
)

// Event is something that happened to an object of an org.
type Event struct {
	// ID is the same whenever the same event is sent, see NewEvent, so that receivers can
	// detect duplicates.
	ID string
	// Type is one of Types.
	Type string
	// Created is when it happened; the receiver gets whole seconds.
	Created time.Time
	// Object is the id of the object: job_..., batch_..., resp_...
	Object string
	// Org is the org whose callers caused it, if another org or the operator receives it.
	Org string
	// URL is an additional target for this event only; empty for none. Sender.CheckURL must
	// have accepted it.
	URL string
	// Data is the event's data as a JSON object with an id; nil: the id alone. Text is the
	// event as text, for targets that accept nothing else.
	Data string
	Text string
}

// NewEvent returns the event that an object has reached the end that the type names. The ID is
// derived from both, so an end can be sent again after a crash.
func NewEvent(typ, object string, at time.Time) Event {
	sum := sha256.Sum256([]byte(typ + " " + object))
	return Event{ID: "evt_" + hex.EncodeToString(sum[:16]), Type: typ, Created: at, Object: object}
}

func (e Event) validate() error {
	if slices.Contains(Types(), e.Type) && e.ID != "" && e.Object != "" {
		return nil
	}
	return fmt.Errorf("webhook: event %q of %q with id %q", e.Type, e.Object, e.ID)
}

// body returns the bytes posted to a target, the same at each attempt.
func (d *delivery) body(t *target) ([]byte, error) {
	var about any = map[string]string{"id": d.Object}
	switch {
	case t.slack:
		return json.Marshal(map[string]string{"text": escape.Lines(d.Text)})
	case len(d.Data) > 0:
		about = d.Data
	}
	return json.Marshal(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created_at"`
		Type    string `json:"type"`
		Data    any    `json:"data"`
	}{d.Event, "event", d.Created, d.Type, about})
}

// notice is what a job carries for Ended.
type notice struct {
	Object string `json:"o,omitempty"` // id of the response that the job creates; empty: the job itself
	URL    string `json:"u,omitempty"`
}

// JobNotice returns the text that a job of the org must carry so that Ended can send its end,
// or "" if no target wants it. url is a target that CheckURL accepted, or empty.
func (s *Sender) JobNotice(org, url string) string { return s.notice(org, "job.", "", url) }

// ResponseNotice is JobNotice for a job that creates the response with this id. Its end is sent
// as that of the response, with "incomplete" as an additional state.
func (s *Sender) ResponseNotice(org, response, url string) string {
	return s.notice(org, "response.", response, url)
}

func (s *Sender) notice(org, kind, object, url string) string {
	wanted := func(typ string) bool { return strings.HasPrefix(typ, kind) && s.Wants(org, typ) }
	if url == "" && !slices.ContainsFunc(Types(), wanted) {
		return ""
	}
	text, _ := json.Marshal(notice{Object: object, URL: url}) // cannot fail for two strings
	return string(text)
}

// ForResponse reports whether a notice is from ResponseNotice.
func ForResponse(text string) bool {
	var n notice
	return json.Unmarshal([]byte(text), &n) == nil && n.Object != ""
}

// responseTypes maps the ends of jobs to those of the responses they create; incomplete comes
// from the provider.
var responseTypes = map[string]string{
	"incomplete": "response.incomplete",
	"succeeded":  "response.completed", "failed": "response.failed", "expired": "response.failed",
	"cancelled": "response.cancelled",
}

// endOf returns the event for the end of a job.
func endOf(job, state, text string, at time.Time) (Event, error) {
	var n notice
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return Event{}, fmt.Errorf("webhook: notice of %s: %w", job, err)
	}
	e := NewEvent("job."+state, job, at)
	if n.Object != "" {
		e = NewEvent(responseTypes[state], n.Object, at)
	}
	e.URL = n.URL
	return e, e.validate()
}
