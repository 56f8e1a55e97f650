package guard

import (
	"errors"
	"net/http"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// idle reports whether an answer of this status is not billed, because the provider
// refused before any work. It may have worked before any other 5xx, and before a 408.
func idle(status int) bool {
	return busy(status) || status >= 300 && status < 500 && status != http.StatusRequestTimeout
}

func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == wire.StatusOverloaded
}

// refused is the outcome of a call whose provider was idle.
func refused(status int) Outcome {
	if busy(status) {
		return Busy
	}
	return Rejected
}

// unsent reports whether an error says that no byte of a request reached the provider.
func unsent(err error) bool {
	var failed *providers.SendError
	return errors.Is(err, providers.ErrStale) || errors.As(err, &failed) && !failed.Sent
}
