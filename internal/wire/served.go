package wire

import (
	"net/http"
	"strings"
)

// served lists what the callers' listener serves beside the endpoints: methods, and a path without /v1 in
// which * is an id. A path that ends in / takes one more id.
var served = []string{
	"GET /",
	"GET /chat/completions",
	"GET,DELETE /responses/",
	"POST /responses/*/cancel",
	"GET /responses/*/input_items",
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
	"GET,POST /files",
	"GET,DELETE /files/",
	"GET /files/*/content",
	"GET,POST /batches",
	"GET /batches/",
	"POST /batches/*/cancel",
	"POST /conversations",
	"GET,POST,DELETE /conversations/",
	"POST,GET /conversations/*/items",
	"GET,DELETE /conversations/*/items/",
	"GET,POST,DELETE /chat/completions/",
	"GET /chat/completions/*/messages",
	"POST /uploads",
	"POST /uploads/*/parts",
	"POST /uploads/*/complete",
	"POST /uploads/*/cancel",
	"POST,GET /vector_stores",
	"GET,POST,DELETE /vector_stores/",
	"POST /vector_stores/*/search",
	"POST,GET /vector_stores/*/files",
	"GET,POST,DELETE /vector_stores/*/files/",
	"GET /vector_stores/*/files/*/content",
	"POST /vector_stores/*/file_batches",
	"GET /vector_stores/*/file_batches/",
	"POST /vector_stores/*/file_batches/*/cancel",
	"GET /vector_stores/*/file_batches/*/files",
	"POST,GET /containers",
	"GET,DELETE /containers/",
	"POST,GET /containers/*/files",
	"GET,DELETE /containers/*/files/",
	"GET /containers/*/files/*/content",
}

// ServedMethods returns the methods of each path that the callers' listener serves.
func ServedMethods() map[string][]string {
	out := make(map[string][]string, len(served)+len(table))
	for _, ep := range Endpoints() {
		out[ep.Path()] = []string{http.MethodPost}
	}
	for _, line := range served {
		methods, path, _ := strings.Cut(line, " ")
		out[path] = append(out[path], strings.Split(methods, ",")...)
	}
	return out
}
