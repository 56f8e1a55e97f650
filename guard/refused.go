package guard

import (
	"errors"
	"net/http"

	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/wire"
)

// idle reports whether an answer of this status is not billed: the provider says that it
// refuses, or that it failed. It may have worked for what a gateway lost, or gave up
// waiting for; see lost.
func idle(status int) bool { return status >= 300 && !lost(status) }

// lost reports whether a status is of something between us and the model that knows no
// end of the call: 408, 502 and 504, and those of Cloudflare from 520 to 527.
func lost(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return status >= 520 && status <= 527
}

func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == wire.StatusOverloaded
}

// refused is the outcome of a call whose provider was idle.
func refused(status int) Outcome {
	switch {
	case busy(status):
		return Busy
	case status >= 500:
		return Failed
	}
	return Rejected
}

// unsent reports whether an error says that no byte of a request reached the provider.
func unsent(err error) bool {
	var failed *providers.SendError
	return errors.Is(err, providers.ErrStale) || errors.As(err, &failed) && !failed.Sent
}
