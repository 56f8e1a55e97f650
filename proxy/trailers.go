package proxy

import (
	"net/http"
	"strings"

	"github.com/llmguard/llmguard/guard"
)

// preferTrailer is the preference of clients whose TE header does not arrive, because it is
// hop-by-hop.
const preferTrailer = "cost-trailer"

// trailers are the headers that a stream can have as trailers.
var trailers = []string{guard.HeaderCost, guard.HeaderEstimate, guard.HeaderWaited}

// wantsTrailer reports whether a client accepts the cost of a stream after its last byte. Other
// clients may fail on it.
func wantsTrailer(h http.Header) bool {
	return names(h.Values("TE"), "trailers") || names(h.Values("Prefer"), preferTrailer)
}

func names(fields []string, word string) bool {
	for _, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			token, _, _ := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(token), word) {
				return true
			}
		}
	}
	return false
}

// announceTrailer announces the trailer in the headers of a stream.
func (x *request) announceTrailer(status int) {
	h := x.Header()
	if x.priced && status == http.StatusOK && h.Get("Content-Length") == "" && wantsTrailer(x.request.Header) {
		h.Set("Trailer", strings.Join(trailers, ", "))
	}
}

// dropTrailer removes the trailer of an answer that did not announce it.
func (x *request) dropTrailer() {
	h := x.Header()
	if h.Get("Trailer") != "" {
		return
	}
	for _, name := range trailers {
		delete(h, http.TrailerPrefix+name)
	}
}
