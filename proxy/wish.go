package proxy

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/wire"
)

// wish is what a caller says of waiting.
type wish struct {
	async    bool          // Prefer: respond-async
	patience time.Duration // 0 when not said
	applied  []string      // the preferences honoured, for Preference-Applied
}

// maxWish bounds what a caller may ask for.
const maxWish = 24 * time.Hour

// parseWish reads Prefer (RFC 7240) and the read timeout the SDKs announce.
// Unknown preferences are ignored, as the RFC demands.
func parseWish(h http.Header) (wish, error) {
	var w wish
	for _, field := range h.Values("Prefer") {
		for item := range strings.SplitSeq(field, ",") {
			token, _, _ := strings.Cut(item, ";")
			name, value, _ := strings.Cut(strings.TrimSpace(token), "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				w.async = true
				w.applied = append(w.applied, "respond-async")
			case "wait":
				seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
				if err != nil || seconds < 0 {
					return wish{}, wire.BadRequest("Prefer", "invalid_prefer", "Prefer: wait takes a whole number of seconds, not %q", shorten(value))
				}
				w.patience = max(time.Duration(min(seconds, int(maxWish/time.Second)))*time.Second, time.Millisecond)
				w.applied = append(w.applied, "wait="+strconv.Itoa(seconds))
			}
		}
	}
	return w, nil
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

// patience is how long a caller can be kept waiting: what it said, what its
// SDK will bear, what the org allows, and for silent connections what Node's
// fetch bears.
func (s *Server) patience(x *exchange, r *http.Request, stream bool, w wish) time.Duration {
	limit := defaultStreamWait
	if !stream {
		limit = s.opts.HoldFor
		if t := announced(r.Header); t > 0 {
			limit = min(limit, max(t-answerMargin, t/2))
		}
	}
	if w.patience > 0 {
		limit = min(limit, w.patience)
	}
	if most := x.caller.Org.MaxWait; most > 0 {
		limit = min(limit, most)
	}
	return limit
}

// defaultStreamWait is how long a stream waits when nobody says otherwise:
// the timeout most SDKs have.
const defaultStreamWait = 10 * time.Minute
