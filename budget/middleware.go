package budget

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// SetHeaders sets X-RateLimit-Limit, -Remaining, -Reset (Unix seconds) and -Resource (the limit's id) as
// the proxy does, and Retry-After, in seconds from now, if the request was refused and will fit later.
func (r Result) SetHeaders(h http.Header) { r.setHeaders(h, time.Now()) }

func (r Result) setHeaders(h http.Header, now time.Time) {
	if r.LimitID != "" {
		state := wire.LimitState{Name: r.LimitID, Amount: r.Limit, Remaining: r.Remaining}
		if r.Reset < Endless {
			state.Reset = now.Add(r.Reset)
		}
		wire.SetLimits(h, "", wire.X, []wire.LimitState{state}, now)
	}
	if !r.Allowed && r.RetryAfter < Endless {
		h.Set("Retry-After", seconds(max(r.RetryAfter, time.Second)))
	}
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}

// Middleware returns a wrapper for handlers that takes one unit of the limiter for each request.
// key returns the id that a request counts for, such as [ByAddress]. All answers have the headers of
// [Result.SetHeaders]. A refused request gets 429, and every request gets 503 while Redis does not answer.
func Middleware(l *Limiter, key func(*http.Request) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			result, err := l.Allow(r.Context(), key(r), 1)
			if err != nil {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "The rate limit cannot be checked right now. Retry in a second.", http.StatusServiceUnavailable)
				return
			}
			result.SetHeaders(w.Header())
			if !result.Allowed {
				http.Error(w, result.refusal(), http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func (r Result) refusal() string {
	if r.RetryAfter >= Endless {
		return "Rate limit exceeded. Waiting does not help."
	}
	return fmt.Sprintf("Rate limit exceeded. Retry in %s s.", seconds(max(r.RetryAfter, time.Second)))
}

// ByAddress returns the client's address, without its port. Behind a reverse proxy that is the
// proxy's: use the header that it sets, and only if clients cannot set it themselves.
func ByAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// ByHeader returns a function that returns a header of a request. Requests without it share one
// counter.
func ByHeader(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.Header.Get(name) }
}
