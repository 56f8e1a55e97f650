package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// fileRefusal returns the answer to a file or batch that cannot be stored.
func fileRefusal(err error) error {
	var full *files.FullError
	if memory, ok := errors.AsType[*capacity.FullError](err); ok {
		return noMemory(memory)
	}
	if !errors.As(err, &full) {
		return unavailable(err)
	}
	whose := "Your organization"
	what := "bytes"
	field := "max_org_bytes"
	switch {
	case full.User && full.Files:
		whose = "You"
		what = "files"
		field = "max_user_files"
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
