package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// refusal converts any error to the answer for the caller. Errors not meant for callers become
// "internal error"; the access record has the cause.
func (s *Server) refusal(err error, plan *guard.Plan) *wire.Error {
	var public *wire.Error
	var exceeded *guard.Refusal
	var noQuota *quota.BusyError
	var full *queue.FullError
	var memory *capacity.FullError
	var busy *guard.BusyError
	var stopped *guard.StoppedError
	var braked *guard.BrakedError
	switch {
	case errors.As(err, &public):
		return public
	case errors.As(err, &stopped):
		return stopped.Public()
	case errors.As(err, &braked):
		return braked.Public()
	case errors.As(err, &exceeded):
		return exceeded.Public()
	case errors.As(err, &noQuota) && noQuota.Never:
		return queue.TooLarge(noQuota.Limit, adviceFor(plan, noQuota.Limit))
	case errors.As(err, &noQuota):
		return wire.RateLimited("The provider's rate limit is exhausted right now", noQuota.Wait)
	case errors.As(err, &memory):
		return noMemory(memory)
	case errors.As(err, &full) && full.RetryAfter <= 0:
		return full.Final(adviceFor(plan, full.Limit))
	case errors.As(err, &full) && full.Scope == "org_memory":
		return wire.RateLimited("Your organization's calls and stored answers fill its share of the store's memory "+
			"(queue.memory_org_share). Cancel waiting jobs, or wait until answers expire (queue.result_ttl)", full.RetryAfter)
	case errors.As(err, &full) && full.Scope == "memory":
		return wire.RateLimited("The store has no memory left for more calls that wait or have an Idempotency-Key "+
			"(queue.memory_share)", full.RetryAfter)
	case errors.As(err, &full):
		e := wire.RateLimited(fmt.Sprintf("The queue is full (%s: at most %d)", full.Scope, full.Limit), full.RetryAfter)
		e.Limit = queueFull(full, time.Now())
		return e
	case errors.As(err, &busy):
		return wire.RateLimited("The provider is busy", max(busy.RetryAfter, time.Second))
	case errors.Is(err, quota.ErrStale):
		return wire.RateLimited("The provider's rate limit is exhausted right now", time.Second)
	case errors.Is(err, budget.ErrFull), capacity.IsFull(err):
		return wire.StoreFull(fullPause, err)
	case errors.Is(err, budget.ErrUnavailable):
		return wire.ServiceUnavailable("The limits cannot be checked right now, so no calls are accepted", time.Second,
			err)
	default:
		return wire.Internal(err)
	}
}

// adviceFor returns additional advice for a call that alone exceeds what the provider takes in a
// minute.
func adviceFor(plan *guard.Plan, tpm int64) string {
	if plan == nil {
		return ""
	}
	return plan.Advice(tpm)
}

func usd(n int64) string { return pricing.Nano(n).Decimal() }

// unavailable returns the answer to a failure of the queue's store. The queue's own refusals are
// returned unchanged.
func unavailable(err error) error {
	var busy *quota.BusyError
	var full *queue.FullError
	var public *wire.Error
	var memory *capacity.FullError
	if err == nil || errors.As(err, &busy) || errors.As(err, &full) || errors.As(err, &public) ||
		errors.As(err, &memory) {
		return err
	}
	if capacity.IsFull(err) {
		return wire.StoreFull(fullPause, err)
	}
	return wire.ServiceUnavailable("The queue is temporarily unavailable", time.Second, err)
}

// fullPause is when to retry if Redis is full: it frees memory as records expire.
const fullPause = 10 * time.Second

// fileRefusal returns the answer to a file or batch that cannot be stored.
func fileRefusal(err error) error {
	var full *files.FullError
	if memory, ok := errors.AsType[*capacity.FullError](err); ok {
		return noMemory(memory)
	}
	if !errors.As(err, &full) {
		return unavailable(err)
	}
	whose, what, field := "Your organization", "bytes", "max_org_bytes"
	switch {
	case full.User && full.Files:
		whose, what, field = "You", "files", "max_user_files"
	case full.Files:
		what, field = "files", "max_org_files"
	case full.User:
		whose, field = "You", "max_user_bytes"
	}
	return wire.QuotaExceeded(fmt.Sprintf("%s reached the limit of stored %s (files.%s: %d). Delete some files",
		whose, what, field, full.Most))
}

// noMemory refuses a request for whose record there is no memory in Redis.
func noMemory(full *capacity.FullError) *wire.Error {
	whose, field := "The store is out of memory", "memory_share"
	if full.Org {
		whose, field = "Your organization has used up its share of the store's memory", "memory_org_share"
	}
	e := wire.RateLimited(fmt.Sprintf(
		"%s (queue.%s). End runs, settle holds, delete files, or wait until records expire. Records of batches are kept for "+
			"31 days",
		whose, field), fullRest)
	e.Err = full
	return e
}

// fullRest is when to retry creating a batch.
const fullRest = time.Minute

func tooManyBatches(full *batch.FullError) *wire.Error {
	whose, field := "Your organization has", "max_open"
	if full.User {
		whose, field = "You have", "max_user_open"
	}
	return wire.RateLimited(fmt.Sprintf(
		"%s %d open batches, which is the limit (batches.%s). Wait until one ends, or cancel one",
		whose, full.Limit, field), fullRest)
}
