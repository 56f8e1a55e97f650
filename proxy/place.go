package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/queue"
)

// The headers in which a waiting call reports its place, if headers can still be sent.
const (
	headerAhead      = "X-Llmguard-Queue-Ahead" // number of jobs ahead of it
	headerETA        = "X-Llmguard-Queue-Eta"   // until it may run; a Go duration
	headerWaitingFor = "X-Llmguard-Waiting-For" // what it waits for: see queue.Place
)

// placeOf returns a job's place.
func (c *callHandler) placeOf(ctx context.Context, j *queue.Job) (queue.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return c.opts.Queue.Place(ctx, c.opts.Guard.Rooms(), j)
}

// tellPlace writes the place of a waiting job to the headers.
func tellPlace(h http.Header, at queue.Place) {
	if at.Cause == "" { // it is not waiting
		return
	}
	h.Set(headerAhead, strconv.Itoa(at.Ahead))
	if at.ETA >= 0 {
		h.Set(headerETA, (time.Duration(wholeSeconds(at.ETA)) * time.Second).String())
	}
	h.Set(headerWaitingFor, at.Cause.Public())
}

// comment formats the place as a line that readers of event streams ignore.
func comment(at queue.Place) string {
	eta := "unknown"
	if at.ETA >= 0 {
		eta = strconv.FormatInt(wholeSeconds(at.ETA), 10)
	}
	return fmt.Sprintf(": waiting position=%d eta=%s for=%s\n", at.Ahead+1, eta, at.Cause.Public())
}

// maxLooks bounds the concurrent lookups of callers' places. While thousands wait, the others get
// the blank line that keeps their connections alive.
const maxLooks = 4

// look returns the place of a waiting caller's job; false if it is not waiting, or if too many
// lookups are in progress.
func (v *waitingCaller) look(ctx context.Context) (queue.Place, bool) {
	c := v.calls
	select {
	case c.looks <- struct{}{}:
		defer func() { <-c.looks }()
	default:
		return queue.Place{}, false
	}
	at, err := c.placeOf(ctx, v.job)
	return at, err == nil && at.Cause != ""
}

// bearsComments reports whether a caller's client is known to skip comments in an event stream:
// OpenAI's own libraries, and callers that request them. Other clients may take a comment for part
// of a subsequent error.
func bearsComments(h http.Header, w preferences) bool {
	switch h.Get("X-Stainless-Lang") {
	case "js", "python", "go":
		return true
	}
	return w.progress
}
