package proxy

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// route is one entry of the fixed table. A client's path is only used for a lookup here; paths sent
// upstream are constants of package wire.
type route struct {
	name    string   // in the access record and the metrics; default: see nameOf
	methods []string // as in wire.ServedMethods
	open    bool     // without authentication
	scope   string   // required of the key; empty: any key
	priced  bool     // bounded by the org's limits and the provider's quota
	reads   int      // units that a GET takes of its key's reads
	writes  int      // units that other methods take
	rates   *reads   // of which units are taken; nil: those of all free requests
	// fees are the methods that may cost money without being bounded as priced.
	fees []string
	// results means that a read of it returns results of one run, and no others, to the key of a run that has ended.
	results bool
	serve   handler
}

// handler serves one route. arg is the id in the path, or several separated by /.
type handler func(x *request, r *http.Request, arg string) error

// table maps paths, without /v1, to routes. A path that ends in / takes one more segment (or, for
// models, several) as its argument.
func (s *Server) table() map[string]route {
	stored := s.files.stored
	table := map[string]route{
		"/":                        {name: "root", open: true, serve: s.greet},
		"/api/hello":               {open: true, serve: hello},
		"/responses/":              {results: true, serve: s.responses.oneResponse},
		"/responses/*/cancel":      {serve: s.responses.cancelResponse},
		"/responses/*/input_items": {serve: s.responses.responseInput},
		"/models":                  {reads: readsPage, serve: s.self.listModels},
		"/models/":                 {reads: readsOne, serve: s.self.getModel},
		"/limits":                  {scope: "usage", reads: readsAll, serve: s.self.ownLimits},
		"/usage":                   {scope: "usage", reads: readsAll, serve: s.self.ownUsage},
		"/jobs":                    {scope: "jobs", reads: readsPage, serve: s.jobs.listJobs},
		"/jobs/":                   {scope: "jobs", reads: readsOne, writes: writesOne, results: true, serve: s.jobs.oneJob},
		"/jobs/*/cancel":           {scope: "jobs", writes: writesOne, serve: s.jobs.cancelJob},
		"/jobs/*/result":           {scope: "jobs", reads: readsOne, results: true, serve: s.jobs.jobResult},
		"/jobs/*/events":           {scope: "jobs", reads: readsOne, results: true, serve: s.jobs.jobEvents},
		"/holds":                   {scope: holdScope, priced: true, serve: s.holds.take},
		"/holds/":                  {scope: holdScope, reads: readsOne, serve: s.holds.get},
		"/holds/*/extend":          {scope: holdScope, rates: s.holds.changes, writes: writesHold, serve: s.holds.extend},
		"/holds/*/settle":          {scope: holdScope, rates: s.holds.changes, writes: writesHold, serve: s.holds.settle},
		"/holds/*/void":            {scope: holdScope, rates: s.holds.changes, writes: writesHold, serve: s.holds.void},
		"/keys/children":           {scope: runScope, reads: readsPage, writes: writesOne, serve: s.runs.all},
		"/keys/children/": {
			name: "keys.children.one", scope: runScope, reads: readsOne, writes: writesOne, serve: s.runs.one,
		},
		"/limit_requests":  {scope: raiseScope, reads: readsPage, writes: writesOne, serve: s.raises.all},
		"/limit_requests/": {scope: raiseScope, reads: readsOne, writes: writesOne, serve: s.raises.one},
		"/files":           {serve: s.files.allFiles},
		"/files/":          {serve: s.files.oneFile},
		"/files/*/content": {serve: s.files.fileContent},
		"/batches": {
			scope: "batches", fees: []string{http.MethodPost}, reads: readsPage, writes: writesOne,
			serve: stored(s.batches.allBatches),
		},
		"/batches/":         {scope: "batches", reads: readsOne, serve: stored(s.batches.oneBatch)},
		"/batches/*/cancel": {scope: "batches", writes: writesOne, serve: stored(s.batches.cancelBatch)},
		"/messages/batches": {
			scope: "batches", fees: []string{http.MethodPost}, reads: readsPage, writes: writesOne,
			serve: stored(s.batches.messageBatches),
		},
		"/messages/batches/": {
			scope: "batches", reads: readsOne, writes: writesOne, serve: stored(s.batches.oneMessageBatch),
		},
		"/messages/batches/*/cancel":  {scope: "batches", writes: writesOne, serve: stored(s.batches.cancelMessageBatch)},
		"/messages/batches/*/results": {scope: "batches", reads: readsOne, serve: stored(s.batches.messageResults)},
	}
	for _, ep := range wire.Endpoints() {
		table[ep.Path()] = route{name: string(ep), scope: string(ep), priced: true, serve: s.calls.metered(ep, s.begin)}
	}
	s.objects.addRoutes(table)
	for path, methods := range wire.ServedMethods() {
		at := table[path]
		if at.serve == nil {
			panic("proxy: no handler for " + path)
		}
		at.name, at.methods = cmp.Or(at.name, nameOf(path)), methods
		table[path] = at
	}
	return table
}

// nameOf returns the usual name of a route: the words of its path, with get if it ends with an id.
func nameOf(path string) string {
	if strings.HasSuffix(path, "/") {
		path += "get"
	}
	return strings.ReplaceAll(strings.ReplaceAll(path[1:], "/*", ""), "/", ".")
}

// units returns how many units a request takes of its key's reads.
func (r *route) units(method string) int {
	if method == http.MethodGet {
		return r.reads
	}
	return r.writes
}

// served lists what the routes serve, for messages.
func served(routes map[string]route) string {
	var list, under []string
	for _, o := range wire.Objects() {
		if o.Path != "" && !o.Here {
			under = append(under, "/v1"+o.Path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(routes)) {
		at := routes[path]
		methods := strings.Join(at.methods, " and ")
		if at.priced {
			methods = http.MethodPost
		}
		below := func(list string) bool { return strings.HasPrefix("/v1"+path, list) }
		if at.open || !at.priced && slices.ContainsFunc(under, below) {
			continue
		}
		path = strings.ReplaceAll(path, "*", "{id}")
		if strings.HasSuffix(path, "/") {
			path += "{id}"
		}
		list = append(list, methods+" /v1"+path)
	}
	return strings.Join(list, ", ") + ", and the objects stored under " + strings.Join(under, ", ")
}

// notServed is the page about the paths of OpenAI's API that are not served.
const notServed = wire.Docs + "openai-api.md#not-served"

// holdScope is the scope of holds for work that llmguard does not send. Only a key that lists it has
// it, because a hold can take a whole limit from others without spending anything.
const holdScope = "holds"

// runScope is the scope of giving budgets to runs.
const runScope = "runs"

// raiseScope is the scope of requests for more of the limits of the key and its user. With raiseOrgScope a key
// speaks for its org: it may request more of the limits of the org and of its group, too. Only a key that
// lists that has it.
const (
	raiseScope    = "limit_requests"
	raiseOrgScope = "limit_requests.org"
)

// may reports whether the caller's key has a scope. The scope calls includes all endpoints that
// cost money.
func (x *request) may(scope string) bool {
	if scope == holdScope || scope == raiseOrgScope {
		return slices.Contains(x.scopes, scope)
	}
	if scope == "" || len(x.scopes) == 0 || slices.Contains(x.scopes, scope) {
		return true
	}
	switch scope {
	case "jobs", "files", "batches", "usage", runScope, raiseScope:
		return false
	}
	return slices.Contains(x.scopes, "calls")
}

func (r *route) class(method string) guard.RequestClass {
	switch {
	case r.priced && method == http.MethodPost, slices.Contains(r.fees, method):
		return guard.Spends
	case method == http.MethodGet || method == http.MethodHead:
		return guard.Reads
	default:
		return guard.Writes
	}
}

// plainPath returns a path without /v1 and without superfluous slashes.
func plainPath(path string) string {
	for strings.Contains(path, "//") { // of base URLs that end in a slash; a redirect would turn a POST into a GET
		path = strings.ReplaceAll(path, "//", "/")
	}
	if rest, ok := strings.CutPrefix(path, "/v1"); ok && (rest == "" || rest[0] == '/') {
		path = rest
	}
	path = strings.TrimRight(path, "/")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return wire.Canonical(path)
}

// match returns the route of a request and its argument.
func (s *Server) match(r *http.Request) (route, string, error) {
	if opensSocket(r) {
		return route{name: "responses.socket", scope: string(wire.Responses), serve: s.sockets.open}, "", nil
	}
	r = asGet(r)
	path := plainPath(r.URL.Path)
	pattern, arg := path, ""
	switch {
	case strings.HasPrefix(path, "/models/"): // model ids may contain slashes
		pattern, arg = "/models/", path[len("/models/"):]
	case s.routes[path].serve == nil,
		strings.Contains(path, "*"): // an id may look like a route, except for the * of a pattern
		pattern, arg = s.withID(path)
	}
	found, ok := s.routes[pattern]
	if !ok {
		return route{}, "", wire.NotFound("", "unknown_url",
			"Unknown request URL: %s %s%s This proxy serves %s. For what it does not serve, and why, see %s",
			r.Method, shorten(r.URL.Path), s.nearPath(path), s.served, notServed)
	}
	if !slices.Contains(found.methods, r.Method) {
		return route{}, "", wire.MethodNotAllowed(r.Method, found.methods)
	}
	return found, arg, nil
}

// nearPath ends a sentence about an unknown path, and names the one that was probably meant.
func (s *Server) nearPath(path string) string {
	if strings.HasPrefix(path, "/admin/") {
		return ". The admin API is on the admin listener (admin.listen)."
	}
	known := slices.Sorted(maps.Keys(s.routes))
	if near := settings.Near(path, known); len(near) > 0 && !strings.Contains(near[0], "*") {
		return ". Did you mean /v1" + near[0] + "?"
	}
	return "."
}

// lists returns the paths of lists of objects. Below each, ids and words alternate.
func lists(routes map[string]route) []string {
	var out []string
	for path := range routes {
		list, _, ids := strings.Cut(path, "*")
		if (ids || strings.HasSuffix(path, "/")) && !slices.Contains(out, list) {
			out = append(out, list)
		}
	}
	return slices.DeleteFunc(out, func(list string) bool { return list == "/" })
}

// withID splits a path below one of the lists into its pattern, in which * replaces each id that is
// not the last part, and the ids, separated by /. Any other path is its own pattern.
func (s *Server) withID(path string) (pattern, ids string) {
	for _, list := range s.lists {
		rest, ok := strings.CutPrefix(path, list)
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		var found []string
		for i := 0; i < len(parts); i += 2 {
			found = append(found, parts[i])
			parts[i] = "*"
		}
		pattern := list + strings.Join(parts, "/")
		if len(parts)%2 == 1 {
			pattern = strings.TrimSuffix(pattern, "*")
		}
		return pattern, strings.Join(found, "/")
	}
	return path, ""
}

func shorten(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// greet answers health checks of clients that request the bare base URL.
func (s *Server) greet(x *request, r *http.Request, _ string) error {
	return x.json(http.StatusOK, map[string]string{"object": "llmguard", "serves": s.served})
}

// hello answers the probe with which Claude Code starts, without a credential.
func hello(x *request, _ *http.Request, _ string) error {
	return x.json(http.StatusOK, map[string]string{"object": "llmguard"})
}

// Azure's clients put the deployment in the path and the version in the query:
// /openai/deployments/{deployment}/chat/completions?api-version=2024-10-21; newer ones call
// /openai/v1/chat/completions.

// fromAzure converts such a request to one of ours and returns the deployment, which is the model,
// whatever the body says. The version is specific to Azure; the provider's configuration has the
// one it needs.
func fromAzure(r *http.Request) (*http.Request, string) {
	path, ok := strings.CutPrefix(strings.TrimLeft(r.URL.Path, "/"), "openai/")
	if !ok {
		return r, ""
	}
	path = strings.TrimLeft(path, "/")
	deployment := ""
	if rest, ok := strings.CutPrefix(path, "deployments/"); ok {
		deployment, path, _ = strings.Cut(rest, "/")
	}
	u := *r.URL
	u.Path = "/" + path
	u.RawPath = ""
	u.RawQuery = withoutVersion(r.URL.RawQuery)
	ours := *r
	ours.URL = &u
	return &ours, deployment
}

// withoutVersion removes api-version from a query and leaves the rest unchanged.
func withoutVersion(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != "api-version" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// scan scans a request whose path may name the model.
func (b *bodyReader) scan(x *request, ep wire.Endpoint, body []byte) (*wire.Request, error) {
	if x.deployment == "" {
		return wire.Scan(ep, body, b.opts.Scan)
	}
	return wire.ScanFor(ep, x.deployment, body, b.opts.Scan)
}
