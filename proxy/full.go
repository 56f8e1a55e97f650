package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/batch"
	"github.com/llmguard/llmguard/files"
	"github.com/llmguard/llmguard/wire"
)

// fileRefusal is the answer to a file, or a batch, that cannot be stored.
func fileRefusal(err error) error {
	var full *files.FullError
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

// fullRest is when to try again to make a batch.
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
