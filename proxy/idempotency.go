package proxy

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// A request may repeat a call: with the same Idempotency-Key, or as the retry of an SDK that was
// asked to return. It is then answered from the call's result, or joins the call.

// headerReplayed marks the answer to an earlier request with the same key.
const headerReplayed = "Idempotent-Replayed"

// repeatHandler finds calls that were made before, by their Idempotency-Key or as a retry of the
// same caller.
type repeatHandler struct {
	opts    *Options
	metrics *metrics
}

// known returns the job that a request belongs to; done means that its answer has already been
// written. patience is how long the caller waits. A job that ended without success is no longer known.
func (h *repeatHandler) known(x *request, r *http.Request, plan *guard.Plan,
	wish preferences, patience time.Duration,
) (job *queue.Job, done bool, err error) {
	id, answer, err := h.knownAs(x, r, plan)
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	if answer != "" {
		return nil, true, h.replayAnswer(ctx, x, answer)
	}
	if id == "" || err != nil {
		return nil, false, err
	}
	present, wait := storeTimeout, patience+deadlineSlack
	if wish.async { // it fetches the result later and does not stay connected
		present = h.opts.Queue.Lifetime(plan.Target.Pool)
		wait = present
	}
	job, err = h.opts.Queue.Places().Return(ctx, x.caller.Org.ID, id, present, wait)
	if errors.Is(err, queue.ErrNotFound) {
		return nil, false, nil
	}
	if err == nil && job.State.Terminal() && job.State != queue.Succeeded {
		if job.State == queue.Failed && x.key == nil {
			return job, false, nil // the retry fails as its call did
		}
		job = nil
	}
	return job, false, unavailable(err)
}

// knownAs returns the job or answer by which a request is known. Without Redis, a request with a
// key is refused, because the call could be made twice; a retry is then treated as a new call.
func (h *repeatHandler) knownAs(x *request, r *http.Request, plan *guard.Plan) (job, answer string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	if keys := r.Header.Values("Idempotency-Key"); len(keys) > 0 {
		return h.openKey(ctx, x, r, plan, keys)
	}
	job, err = h.opts.Idempotency.Take(ctx, x.caller.Org.ID, h.print(x, r, plan))
	if err != nil {
		h.opts.Log.Debug("lookup of reserved place failed", "id", x.id, "err", err)
	}
	return job, "", nil
}

// repeatable reports whether a request may be known: it has a key, or is a retry.
func repeatable(h http.Header) bool { return len(h["Idempotency-Key"]) > 0 || retried(h) }

// retried reports whether an SDK marks the request as a retry.
func retried(h http.Header) bool {
	count := h.Get("X-Stainless-Retry-Count")
	if count == "" { // an error from Atoi costs more than the rest
		return false
	}
	n, err := strconv.Atoi(count)
	return err == nil && n > 0
}

// print identifies requests of a caller that count as the same. It includes which of the user's
// keys was used.
func (h *repeatHandler) print(x *request, r *http.Request, plan *guard.Plan) idempotency.Fingerprint {
	return idempotency.FingerprintOf([]byte(x.caller.Owner()), []byte(x.caller.Key), []byte(plan.Request.Endpoint),
		[]byte(r.URL.RawQuery), plan.Request.Body)
}

// maxKeyText is the maximum length of an Idempotency-Key.
const maxKeyText = 255

// openKey takes the caller's idempotency key and returns the job or answer it leads to, if any.
func (h *repeatHandler) openKey(ctx context.Context, x *request, r *http.Request, plan *guard.Plan,
	keys []string,
) (job, answer string, err error) {
	text, err := keyText(keys)
	if err != nil {
		return "", "", err
	}
	scope := idempotency.FingerprintOf([]byte(x.caller.Owner()), []byte(plan.Request.Endpoint), []byte(text))
	body := idempotency.FingerprintOf([]byte(r.URL.RawQuery), plan.Request.Body)
	key, found, err := h.opts.Idempotency.Open(ctx, x.caller.Org.ID, scope, body, x.id)
	if err != nil {
		return "", "", keyFailure(err)
	}
	x.key = key
	if found == (idempotency.Found{}) {
		err = h.admitKey(ctx, x)
	}
	return found.Job, found.Answer, err
}

func keyText(values []string) (string, error) {
	text := values[0]
	if len(values) > 1 || text == "" || len(text) > maxKeyText || strings.ContainsFunc(text, func(c rune) bool {
		return c < ' ' || c > '~'
	}) {
		return "", wire.BadRequest("Idempotency-Key", "invalid_idempotency_key",
			"Idempotency-Key must be one value of 1 to %d printable ASCII characters", maxKeyText)
	}
	return text, nil
}

// keyFailure returns the answer to a request whose key could not be taken.
func keyFailure(err error) error {
	var held *idempotency.HeldError
	switch {
	case errors.Is(err, idempotency.ErrOther):
		return wire.KeyReused()
	case errors.As(err, &held):
		return wire.NotFinished("The call with this Idempotency-Key is still in progress", heldPause)
	}
	return unavailable(err)
}

// admitKey admits the record that a new key leaves.
func (h *repeatHandler) admitKey(ctx context.Context, x *request) error {
	err := h.opts.Queue.Records().Reserve(ctx, x.caller.Org.ID, x.id, h.opts.KeepAnswer)
	if err == nil {
		return nil
	}
	if err := x.key.Free(ctx); err != nil {
		h.opts.Log.Debug("idempotency key not freed, its lease will expire", "id", x.id, "err", err)
	}
	x.key = nil
	return unavailable(err)
}

// heldPause is when to retry while the call is in progress.
const heldPause = 2 * time.Second

// decide determines what the request's key leads to: the job or the answer, or, after any failure,
// nothing.
func (h *repeatHandler) decide(x *request) {
	if x.key == nil {
		return
	}
	defer x.waitedForRedis(time.Now())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.request.Context()), storeTimeout)
	defer cancel()
	if err := h.decideKey(ctx, x); err != nil {
		h.opts.Log.Warn("idempotency key not written, its lease will expire", "id", x.id, "err", err)
	}
}

func (h *repeatHandler) decideKey(ctx context.Context, x *request) error {
	switch {
	case x.stays: // the job counts it
		return errors.Join(x.key.Leave(ctx), h.opts.Queue.Records().Drop(ctx, x.id))
	case !x.keep.whole(x.call):
		return errors.Join(x.key.Free(ctx), h.opts.Queue.Records().Drop(ctx, x.id))
	}
	body, whole := x.keep.body.Bytes()
	if !whole {
		return errors.Join(x.key.Done(ctx, notKept, h.opts.KeepAnswer),
			h.opts.Queue.Records().Keep(ctx, x.id, h.opts.KeepAnswer))
	}
	answer := queue.Answer{Status: x.keep.status, Header: x.keep.header, Body: body}
	err := h.opts.Queue.KeepAnswer(ctx, x.caller.Org.ID, x.id, answer, h.opts.KeepAnswer)
	switch {
	case errors.Is(err, queue.ErrNoRoom): // it was charged, and is not repeated
		return x.key.Done(ctx, notKept, h.opts.KeepAnswer)
	case err != nil:
		return errors.Join(err, x.key.Free(ctx))
	}
	return x.key.Done(ctx, x.id, h.opts.KeepAnswer)
}

// notKept replaces an answer that was too large to store, or for which there was no space.
const notKept = "-"

func (h *repeatHandler) replayAnswer(ctx context.Context, x *request, id string) error {
	var a queue.Answer
	err := queue.ErrNotFound
	if id != notKept {
		a, err = h.opts.Queue.Answer(ctx, x.caller.Org.ID, id)
	}
	if errors.Is(err, queue.ErrNotFound) {
		return wire.Gone("answer_not_kept",
			"The call with this Idempotency-Key was completed and charged, but its answer was not kept: it was too large, or "+
				"your organization's memory share is full. Use a new key for a new call")
	}
	if err != nil {
		return unavailable(err)
	}
	h.metrics.again.WithLabelValues("replayed").Inc()
	x.replayed = true
	maps.Copy(x.Header(), a.Header)
	x.Header().Set(headerReplayed, "true")
	return x.whole(a.Status, a.Body)
}

// maxKept bounds the recorded answer of a live call.
const maxKept = 1 << 20

// recording is the answer of a live call as sent to its caller. A nil recording records nothing.
type recording struct {
	status int
	header http.Header
	body   *spool.Copy
	deaf   bool // the caller takes no more; the recording continues
}

func (k *recording) head(status int, h http.Header) {
	if k == nil || k.status != 0 || status < 200 {
		return
	}
	k.status, k.header = status, h.Clone()
	k.header.Del("Trailer")
	k.header.Del("Access-Control-Allow-Origin") // it depends on who repeats the call
}

func (k *recording) add(p []byte) {
	if k != nil {
		k.body.Add(p)
	}
}

func (k *recording) close() {
	if k != nil {
		k.body.Close()
	}
}

// whole reports whether the call succeeded and its answer, with its end, was written completely. Any other call
// may be repeated with the same key.
func (k *recording) whole(call *guard.Call) bool {
	if k == nil || call == nil || k.status == 0 || k.status >= 400 || !call.Result.Ended {
		return false
	}
	switch call.Result.Outcome {
	case guard.Completed, guard.NoUsage, guard.Cached:
		return true
	}
	return false
}
