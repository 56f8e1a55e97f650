package proxy

import (
	"net/http"
	"strings"

	"github.com/llmguard/llmguard/guard"
)

// preferTrailer is the preference of clients whose TE does not get here: it goes from hop
// to hop.
const preferTrailer = "cost-trailer"

// wantsTrailer reports whether a client takes the cost of a stream behind its last byte.
// Others may stumble over it.
func wantsTrailer(h http.Header) bool {
	return names(h.Values("TE"), "trailers") || names(h.Values("Prefer"), preferTrailer)
}

// names reports whether a header lists a word.
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

// announceTrailer says before a stream what will follow it.
func (x *request) announceTrailer(status int) {
	h := x.Header()
	if x.priced && status == http.StatusOK && h.Get("Content-Length") == "" && wantsTrailer(x.request.Header) {
		h.Set("Trailer", guard.HeaderCost+", "+guard.HeaderEstimate)
	}
}

// dropTrailer takes back the trailer of an answer that did not announce it.
func (x *request) dropTrailer() {
	h := x.Header()
	if h.Get("Trailer") != "" {
		return
	}
	for _, name := range []string{guard.HeaderCost, guard.HeaderEstimate} {
		delete(h, http.TrailerPrefix+name)
	}
}
