package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// preferences are a caller's preferences for waiting.
type preferences struct {
	async    bool          // Prefer: respond-async
	patience time.Duration // 0 when not said
	waits    string        // "wait=N" when said, for Preference-Applied
	webhook  string        // URL to notify when the job has ended
	progress bool          // Prefer: progress: a waiting stream gets comments
	priority quota.Priority
	deadline time.Time // by which the call has to start; zero when not said
}

// maxWish is the maximum that a caller may request.
const maxWish = 24 * time.Hour

// parseWish parses Prefer (RFC 7240). Unknown preferences are ignored, as the RFC requires.
func parseWish(h http.Header) (preferences, error) {
	var w preferences
	for _, field := range h.Values("Prefer") {
		for item := range strings.SplitSeq(field, ",") {
			token, _, _ := strings.Cut(item, ";")
			name, value, _ := strings.Cut(strings.TrimSpace(token), "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				w.async = true
			case "progress":
				w.progress = true
			case "wait":
				seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
				if err != nil || seconds < 0 {
					return preferences{}, wire.BadRequest("Prefer", "invalid_prefer",
						"Prefer: wait must be a whole number of seconds, not %q", shorten(value))
				}
				w.patience = max(time.Duration(min(seconds, int(maxWish/time.Second)))*time.Second, time.Millisecond)
				w.waits = "wait=" + strconv.Itoa(seconds)
			}
		}
	}
	return w, nil
}

// headerWebhook names the URL to notify of a job's end.
const headerWebhook = "X-Llmguard-Webhook"

// webhookOf returns the target that a request names for its job, empty if none.
func (c *callHandler) webhookOf(org string, h http.Header, async bool) (string, error) {
	list := h.Values(headerWebhook)
	switch {
	case len(list) == 0:
		return "", nil
	case len(list) > 1 || !async:
		return "", wire.BadRequest(headerWebhook, "invalid_webhook",
			"%s takes one URL and requires Prefer: respond-async or background: true", headerWebhook)
	}
	return list[0], c.checkWebhook(org, headerWebhook, list[0])
}

// checkWebhook refuses a target that requests of the org may not use; param is the field that
// contains it.
func (c *callHandler) checkWebhook(org, param, url string) error {
	if c.opts.Webhooks == nil {
		return wire.BadRequest(param, "webhook_not_allowed", "Webhooks are not enabled on this proxy. Set `webhooks` in the configuration")
	}
	if err := c.opts.Webhooks.CheckURL(org, url); err != nil {
		return wire.BadRequest(param, "webhook_not_allowed", "%s cannot be used as a webhook target: %s", shorten(url), err)
	}
	return nil
}

// announced returns the read timeout that an SDK announces, or 0.
func announced(h http.Header) time.Duration {
	for _, name := range []string{"X-Stainless-Read-Timeout", "X-Stainless-Timeout"} {
		if seconds, err := strconv.ParseFloat(h.Get(name), 64); err == nil && seconds > 0 && seconds < maxWish.Seconds() {
			return time.Duration(seconds * float64(time.Second))
		}
	}
	return 0
}

// answerMargin is the part of a caller's timeout reserved for sending our answer.
const answerMargin = 2 * time.Second

// patience is how long a caller can wait: wait for its job to start, hold for the answer. hold is 0
// if newlines keep the connection alive.
type patience struct{ wait, hold time.Duration }

// patience returns a caller's patience, based on what it requested, its SDK's timeout, and for
// silent connections the timeout of Node's fetch. A call has to start while there is time left for
// its answer, or within the first quarter if its answers take longer. The org's bound applies to
// waiting only.
func (c *callHandler) patience(x *request, r *http.Request, plan *guard.Plan, w preferences) patience {
	stream := plan.Request.Stream
	p := patience{wait: defaultStreamWait}
	if w.patience > 0 {
		p.wait = min(p.wait, w.patience)
	}
	if !stream || w.async {
		p.hold = min(p.wait, c.opts.HoldFor)
		if t := announced(r.Header); t > 0 {
			p.hold = min(p.hold, max(t-answerMargin, t/2))
		}
		p.wait = p.hold
	}
	if !stream && !w.async {
		p.wait -= min(c.runs.most(x.caller.Org.ID, plan.Request.Model), p.hold/4*3)
	}
	if most := x.caller.Org.MaxWait; most > 0 {
		p.wait = min(p.wait, most)
	}
	if !w.deadline.IsZero() {
		p.wait = min(p.wait, w.deadline.Sub(x.arrived))
	}
	return p
}

// defaultStreamWait is how long a stream waits by default: the timeout of most SDKs.
const defaultStreamWait = 10 * time.Minute

const (
	headerPriority = "Llmguard-Priority"
	headerDeadline = "Llmguard-Deadline"
	// headerPriorityIs reports the priority of a call in its answer.
	headerPriorityIs = "X-Llmguard-Priority"
)

// chosenPriority returns the priority that a request names, or nil.
func chosenPriority(h http.Header) (*quota.Priority, error) {
	list := h.Values(headerPriority)
	if len(list) == 0 {
		return nil, nil
	}
	p, err := quota.ParsePriority(list[0])
	if err != nil || len(list) > 1 {
		return nil, wire.BadRequest(headerPriority, "invalid_priority", "%s must be high, normal or low, not %q",
			headerPriority, shorten(list[len(list)-1]))
	}
	return &p, nil
}

// deadlineOf returns the time by which a request has to start; zero if it names none.
func deadlineOf(h http.Header, now time.Time) (time.Time, error) {
	list := h.Values(headerDeadline)
	if len(list) == 0 {
		return time.Time{}, nil
	}
	text := list[0]
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		var d time.Duration
		d, err = settings.ParseDuration(text)
		at = now.Add(d)
	}
	switch {
	case err != nil || len(list) > 1:
		return time.Time{}, wire.BadRequest(headerDeadline, "invalid_deadline",
			"%s must be one duration from now such as 30s, 5m or 1h, or one time such as 2027-01-31T18:00:00Z, not %q",
			headerDeadline, shorten(text))
	case !at.After(now):
		return time.Time{}, wire.BadRequest(headerDeadline, "invalid_deadline",
			"%s must be in the future; %q is not", headerDeadline, shorten(text))
	}
	return at, nil
}

// prioritize reads the priority and the deadline of a call, and reports the priority if the call
// chose one or has another than normal.
func (w *preferences) prioritize(x *request, h http.Header, plan *guard.Plan) error {
	chosen, err := chosenPriority(h)
	if err != nil {
		return err
	}
	w.deadline, err = deadlineOf(h, x.arrived)
	if err != nil {
		return err
	}
	w.priority = plan.Priority(chosen)
	if chosen != nil || w.priority != quota.Normal {
		x.Header().Set(headerPriorityIs, w.priority.String())
	}
	return nil
}

// order sets a job's priority, and its deadline unless it has an earlier one.
func (w *preferences) order(job *queue.Job) {
	job.Priority = w.priority
	if w.deadline.IsZero() {
		return
	}
	job.ByDeadline = true
	if job.Deadline.IsZero() || w.deadline.Before(job.Deadline) {
		job.Deadline = w.deadline
	}
}
