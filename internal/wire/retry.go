package wire

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// HeaderRules say how answers report limits and when to retry. The zero value is X without jitter.
type HeaderRules struct {
	Standard Standard
	// RetryJitter is the percentage of a wait that may be added to it, 0 to 100; 0 adds nothing.
	RetryJitter int
}

// MaxRetryAfter is the longest wait that every version of every SDK obeys.
const MaxRetryAfter = 60 * time.Second

// SetRetryAfter sets the headers that ask the client to retry after wait: in whole seconds, rounded
// up, at least one. A wait of more than a minute is sent unchanged, with the advice not to retry,
// because some SDKs would otherwise retry immediately (docs/errors.md, Retry advice).
func SetRetryAfter(h http.Header, wait time.Duration) {
	if wait > MaxRetryAfter {
		h.Set("X-Should-Retry", "false")
	}
	seconds := max(1, int64((wait-1)/time.Second)+1)
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
}

func retryAfter(wait time.Duration) http.Header {
	h := make(http.Header, 2)
	SetRetryAfter(h, wait)
	return h
}

// RetryAfter is SetRetryAfter with jitter.
func (r HeaderRules) RetryAfter(h http.Header, wait time.Duration) {
	SetRetryAfter(h, wait)
	r.spread(h)
}

// Docs is where the documentation is published. errors.md explains each code under an anchor of its name.
const Docs = "https://github.com/llmguard/llmguard/blob/main/docs/"

// Advise copies the headers of an error to its answer, with a link to the explanation of its code. A 429 or 503
// gets jitter.
func (r HeaderRules) Advise(h http.Header, e *Error) {
	if e.Code != "" && !e.Relayed {
		h.Set("Link", "<"+Docs+"errors.md#"+e.Code+`>; rel="help"`)
	}
	for name, values := range e.Header {
		h[name] = values
	}
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		r.spread(h)
	}
}

const (
	leastJitter = 2 * time.Second // less would not spread short waits over several seconds
	mostJitter  = time.Minute
)

// spread adds a random time to Retry-After, so that callers refused by the same limit do not return
// in the same second: up to RetryJitter percent of it, at least 2 s and at most 60 s. A wait that
// clients obey stays within MaxRetryAfter (docs/errors.md, Retry advice).
func (r HeaderRules) spread(h http.Header) {
	seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32)
	if err != nil || r.RetryJitter <= 0 {
		return
	}
	wait := time.Duration(seconds) * time.Second
	most := min(max(wait*time.Duration(r.RetryJitter)/100, leastJitter), mostJitter)
	if wait <= MaxRetryAfter {
		most = min(most, MaxRetryAfter-wait)
	}
	SetRetryAfter(h, wait+rand.N(most/time.Second+1)*time.Second)
}
