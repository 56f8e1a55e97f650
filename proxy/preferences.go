package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
)

// preferences is what a caller says of waiting.
type preferences struct {
	async    bool          // Prefer: respond-async
	patience time.Duration // 0 when not said
	waits    string        // "wait=N" when said, for Preference-Applied
	webhook  string        // URL to be told when the job has ended
	progress bool          // Prefer: progress: a stream that waits gets comments
}

// maxWish bounds what a caller may ask for.
const maxWish = 24 * time.Hour

// parseWish reads Prefer (RFC 7240) and the read timeout the SDKs announce.
// Unknown preferences are ignored, as the RFC demands.
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
						"Prefer: wait takes a whole number of seconds, not %q", shorten(value))
				}
				w.patience = max(time.Duration(min(seconds, int(maxWish/time.Second)))*time.Second, time.Millisecond)
				w.waits = "wait=" + strconv.Itoa(seconds)
			}
		}
	}
	return w, nil
}

// headerWebhook names who is to be told of a job's end.
const headerWebhook = "X-Llmguard-Webhook"

// webhookOf returns the target a request names for its job, empty for none.
func (c *callHandler) webhookOf(org string, h http.Header, async bool) (string, error) {
	list := h.Values(headerWebhook)
	switch {
	case len(list) == 0:
		return "", nil
	case len(list) > 1 || !async:
		return "", wire.BadRequest(headerWebhook, "invalid_webhook",
			"%s takes one URL, and goes with Prefer: respond-async or a background: any other call is answered on its "+
				"connection", headerWebhook)
	}
	return list[0], c.checkWebhook(org, headerWebhook, list[0])
}

// checkWebhook refuses a target that requests of the org may not name; param is
// where it stands.
func (c *callHandler) checkWebhook(org, param, url string) error {
	if c.opts.Webhooks == nil {
		return wire.BadRequest(param, "webhook_not_allowed", "This proxy tells nobody of what has ended")
	}
	if err := c.opts.Webhooks.CheckURL(org, url); err != nil {
		return wire.BadRequest(param, "webhook_not_allowed", "%s cannot be told: %s", shorten(url), err)
	}
	return nil
}

// announced is the read timeout an SDK says it has, in seconds; 0 for none.
func announced(h http.Header) time.Duration {
	for _, name := range []string{"X-Stainless-Read-Timeout", "X-Stainless-Timeout"} {
		if seconds, err := strconv.ParseFloat(h.Get(name), 64); err == nil && seconds > 0 && seconds < maxWish.Seconds() {
			return time.Duration(seconds * float64(time.Second))
		}
	}
	return 0
}

// answerMargin is kept of a caller's timeout for our answer to arrive in.
const answerMargin = 2 * time.Second

// patience is how long a caller can be kept: `wait` for its job to start, `hold`
// for the answer, 0 when newlines keep the connection alive.
type patience struct{ wait, hold time.Duration }

// patience of a caller: what it said, what its SDK will bear, and for silent
// connections what Node's fetch bears. A call starts while there is time left for
// its answer, or within the first quarter if its answers take longer. The org bounds waiting only.
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
	return p
}

// defaultStreamWait is how long a stream waits when nobody says otherwise:
// the timeout most SDKs have.
const defaultStreamWait = 10 * time.Minute
