package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
)

// plainHTTP refuses what needs another protocol than HTTP/1.1 or HTTP/2 over TLS. An offer of h2c is
// ignored (RFC 9110, section 7.8), because Java's HTTP client adds one to every request.
func plainHTTP(r *http.Request) error {
	if r.Method == "PRI" { // the preface of HTTP/2, sent without TLS
		e := wire.BadRequest("", "http_version_not_supported",
			"HTTP/2 without TLS is not supported. Use HTTP/1.1, or HTTP/2 over TLS")
		e.Status = http.StatusHTTPVersionNotSupported
		e.Header = http.Header{"Connection": {"close"}}
		return e
	}
	for offer := range strings.SplitSeq(strings.Join(r.Header.Values("Upgrade"), ","), ",") {
		offer = strings.TrimSpace(offer)
		if offer != "" && !strings.EqualFold(offer, "h2c") && !opensSocket(r) {
			return wire.BadRequest("", "upgrade_not_supported",
				"The only protocol upgrade that is supported is a WebSocket at /v1/responses. Use HTTP requests")
		}
	}
	return nil
}

// asGet returns a HEAD request as the GET with the same headers. net/http leaves out the body.
func asGet(r *http.Request) *http.Request {
	if r.Method != http.MethodHead {
		return r
	}
	get := *r
	get.Method = http.MethodGet
	return &get
}

// allowOrigin lets a page of a configured origin read the answer (CORS). Cookies are never used, so
// credentials in their sense are not allowed.
func (s *Server) allowOrigin(h http.Header, r *http.Request) {
	if len(s.opts.CORSOrigins) == 0 {
		return
	}
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
	case slices.Contains(s.opts.CORSOrigins, "*"):
		h.Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(s.opts.CORSOrigins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
	}
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Expose-Headers", "*")
	}
}

// preflight answers a browser that asks, without a key, whether a page may send a request. It reports
// whether the request was one.
func (s *Server) preflight(x *request, r *http.Request) bool {
	asked := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || asked == "" || x.Header().Get("Access-Control-Allow-Origin") == "" {
		return false
	}
	x.route = "preflight"
	h := x.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE")
	h.Set("Access-Control-Max-Age", "600")
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	x.WriteHeader(http.StatusNoContent)
	return true
}
