package wire

import (
	"net/http"
	"strings"
)

// served lists what the callers' listener serves beside the endpoints and objects: methods, and a path without /v1 in
// which * is an id. A path that ends in / takes one more id.
var served = []string{
	"GET /",
	"GET /api/hello",
	"GET /models",
	"GET /models/",
	"GET /limits",
	"GET /usage",
	"GET /jobs",
	"GET,DELETE /jobs/",
	"POST /jobs/*/cancel",
	"GET /jobs/*/result",
	"GET /jobs/*/events",
	"POST /holds",
	"GET /holds/",
	"POST /holds/*/extend",
	"POST /holds/*/settle",
	"POST /holds/*/void",
	"GET,POST /keys/children",
	"GET,POST,DELETE /keys/children/",
	"GET,POST /limit_requests",
	"GET,DELETE /limit_requests/",
	"GET,POST /batches",
	"GET /batches/",
	"POST /batches/*/cancel",
	"GET,POST /messages/batches",
	"GET,DELETE /messages/batches/",
	"POST /messages/batches/*/cancel",
	"GET /messages/batches/*/results",
}

// ServedMethods returns the methods of each path that the callers' listener serves.
func ServedMethods() map[string][]string {
	out := make(map[string][]string)
	for _, ep := range Endpoints() {
		out[ep.Path()] = []string{http.MethodPost}
	}
	for _, line := range served {
		methods, path, _ := strings.Cut(line, " ")
		out[path] = append(out[path], strings.Split(methods, ",")...)
	}
	for _, op := range Operations() {
		out[op.Path] = append(out[op.Path], op.Method)
	}
	return out
}
