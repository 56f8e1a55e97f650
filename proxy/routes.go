package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/wire"
)

// route is one entry of the fixed table. A client's path is only ever looked
// up here; what goes upstream is a constant of package wire.
type route struct {
	name    string // the access record's and the metrics' word for it
	methods []string
	open    bool // without authentication
	serve   func(x *exchange, r *http.Request, arg string) error
}

// table maps paths, without /v1, to routes. A path that ends in / takes one
// more segment (or, for models, several) as its argument.
func (s *Server) table() map[string]route {
	post, get := []string{http.MethodPost}, []string{http.MethodGet}
	return map[string]route{
		"/":                 {name: "root", methods: []string{http.MethodGet, http.MethodHead}, open: true, serve: s.greet},
		"/chat/completions": {name: "chat.completions", methods: post, serve: s.metered(wire.ChatCompletions)},
		"/embeddings":       {name: "embeddings", methods: post, serve: s.metered(wire.Embeddings)},
		"/models":           {name: "models", methods: get, serve: s.listModels},
		"/models/":          {name: "models.get", methods: get, serve: s.getModel},
		"/jobs":             {name: "jobs", methods: get, serve: s.listJobs},
		"/jobs/":            {name: "jobs.get", methods: []string{http.MethodGet, http.MethodDelete}, serve: s.oneJob},
		"/jobs/*/cancel":    {name: "jobs.cancel", methods: post, serve: s.cancelJob},
		"/jobs/*/result":    {name: "jobs.result", methods: get, serve: s.jobResult},
	}
}

const served = "POST /v1/chat/completions, POST /v1/embeddings, GET /v1/models, GET /v1/models/{id}, " +
	"GET /v1/jobs, GET /v1/jobs/{id}, POST /v1/jobs/{id}/cancel and GET /v1/jobs/{id}/result"

// match finds the route of a request and its argument.
func (s *Server) match(r *http.Request) (route, string, error) {
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/v1"); ok && (rest == "" || rest[0] == '/') {
		path = rest
	}
	path = "/" + strings.Trim(path, "/")
	pattern, arg := path, ""
	switch {
	case strings.HasPrefix(path, "/models/"): // model ids may contain slashes
		pattern, arg = "/models/", path[len("/models/"):]
	case strings.HasPrefix(path, "/jobs/"):
		id, verb, deeper := strings.Cut(path[len("/jobs/"):], "/")
		pattern, arg = "/jobs/", id
		if deeper {
			pattern = "/jobs/*/" + verb
		}
	}
	found, ok := s.routes[pattern]
	if !ok {
		return route{}, "", wire.NotFound("", "unknown_url", "Unknown request URL: %s %s. This proxy serves %s", r.Method, shorten(r.URL.Path), served)
	}
	if !slices.Contains(found.methods, r.Method) {
		return route{}, "", wire.MethodNotAllowed(r.Method, found.methods)
	}
	return found, arg, nil
}

func shorten(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// greet answers health probes of clients that ask the bare base URL.
func (s *Server) greet(x *exchange, r *http.Request, _ string) error {
	return x.json(http.StatusOK, map[string]string{"object": "llmguard", "serves": served})
}
