package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/ownership"
)

// operation is one kind of request about things that a provider stores for an org. All of them are
// handled by objectHandler.relay: what their path and body name must belong to the org, the
// provider that stores it is asked, and what the answer creates is recorded.
type operation struct {
	method, path string         // the path as in Server.table
	of           ownership.Kind // kind of the first id in the path; "": there is none
	makes        ownership.Kind // kind of the id in the answer; "": nothing new
	ends         bool           // the thing is deleted
	lists        ownership.Kind // kind of the org's things to list
	file         string         // name of the form part with the file; "": the body is JSON
	fee          fee            // its cost; nil: free
}

const (
	getIt  = http.MethodGet
	postIt = http.MethodPost
	dropIt = http.MethodDelete
)

// operations lists all of them. Those for files are used by fileHandler.allFiles and its siblings,
// which know the files that are stored here.
var operations = []operation{
	{method: postIt, path: "/conversations", makes: ownership.Conversation},
	{method: getIt, path: "/conversations/", of: ownership.Conversation},
	{method: postIt, path: "/conversations/", of: ownership.Conversation},
	{method: dropIt, path: "/conversations/", of: ownership.Conversation, ends: true},
	{method: postIt, path: "/conversations/*/items", of: ownership.Conversation},
	{method: getIt, path: "/conversations/*/items", of: ownership.Conversation},
	{method: getIt, path: "/conversations/*/items/", of: ownership.Conversation},
	{method: dropIt, path: "/conversations/*/items/", of: ownership.Conversation},

	{method: getIt, path: "/chat/completions", lists: ownership.Completion},
	{method: getIt, path: "/chat/completions/", of: ownership.Completion},
	{method: postIt, path: "/chat/completions/", of: ownership.Completion},
	{method: dropIt, path: "/chat/completions/", of: ownership.Completion, ends: true},
	{method: getIt, path: "/chat/completions/*/messages", of: ownership.Completion},

	{method: postIt, path: "/uploads", makes: ownership.Upload},
	{method: postIt, path: "/uploads/*/parts", of: ownership.Upload, makes: ownership.UploadPart, file: "data"},
	{method: postIt, path: "/uploads/*/complete", of: ownership.Upload, makes: ownership.File},
	{method: postIt, path: "/uploads/*/cancel", of: ownership.Upload},

	{method: postIt, path: "/vector_stores", makes: ownership.VectorStore, fee: storedFiles},
	{method: getIt, path: "/vector_stores", lists: ownership.VectorStore},
	{method: getIt, path: "/vector_stores/", of: ownership.VectorStore},
	{method: postIt, path: "/vector_stores/", of: ownership.VectorStore},
	{method: dropIt, path: "/vector_stores/", of: ownership.VectorStore, ends: true},
	{method: postIt, path: "/vector_stores/*/search", of: ownership.VectorStore, fee: search},
	{method: postIt, path: "/vector_stores/*/files", of: ownership.VectorStore, fee: storedFiles},
	{method: getIt, path: "/vector_stores/*/files", of: ownership.VectorStore},
	{method: getIt, path: "/vector_stores/*/files/", of: ownership.VectorStore},
	{method: postIt, path: "/vector_stores/*/files/", of: ownership.VectorStore},
	{method: dropIt, path: "/vector_stores/*/files/", of: ownership.VectorStore},
	{method: getIt, path: "/vector_stores/*/files/*/content", of: ownership.VectorStore},
	{method: postIt, path: "/vector_stores/*/file_batches", of: ownership.VectorStore, fee: storedFiles},
	{method: getIt, path: "/vector_stores/*/file_batches/", of: ownership.VectorStore},
	{method: postIt, path: "/vector_stores/*/file_batches/*/cancel", of: ownership.VectorStore},
	{method: getIt, path: "/vector_stores/*/file_batches/*/files", of: ownership.VectorStore},

	{method: postIt, path: "/containers", makes: ownership.Container, fee: session},
	{method: getIt, path: "/containers", lists: ownership.Container},
	{method: getIt, path: "/containers/", of: ownership.Container, fee: session},
	{method: dropIt, path: "/containers/", of: ownership.Container, ends: true},
	{method: postIt, path: "/containers/*/files", of: ownership.Container, file: "file", fee: session},
	{method: getIt, path: "/containers/*/files", of: ownership.Container, fee: session},
	{method: getIt, path: "/containers/*/files/", of: ownership.Container, fee: session},
	{method: dropIt, path: "/containers/*/files/", of: ownership.Container, fee: session},
	{method: getIt, path: "/containers/*/files/*/content", of: ownership.Container, fee: session},
}

// Operations on files that a provider stores.
var (
	getFile     = operation{method: getIt, path: "/files/", of: ownership.File}
	deleteFile  = operation{method: dropIt, path: "/files/", of: ownership.File, ends: true}
	contentFile = operation{method: getIt, path: "/files/*/content", of: ownership.File}
	uploadFile  = operation{method: postIt, path: "/files", makes: ownership.File, file: "file"}
)

type relation struct{ path, name, scope string }

// related lists the names and scopes of routes with operations, by the first part of their path.
var related = []relation{
	{"/chat/completions", "chat.completions", "chat.completions"},
	{"/conversations", "conversations", "responses"},
	{"/uploads", "uploads", "files"},
	{"/vector_stores", "vector_stores", "vector_stores"},
	{"/containers", "containers", "containers"},
}

// addOperations adds the routes of operations to the table.
func (s *Server) addOperations(table map[string]route) {
	for _, op := range operations {
		at, known := table[op.path]
		if !known {
			at = s.routeOf(op)
		}
		if op.method == getIt {
			at.reads = readsOne
			if op.lists != "" {
				at.reads = readsPage
			}
		} else if !at.priced {
			at.writes = writesOne
		}
		if op.fee != nil {
			at.fees = append(slices.Clone(at.fees), op.method)
		}
		at.serve = s.oneOf(op, at.serve)
		table[op.path] = at
	}
}

// routeOf returns a new route for an operation.
func (s *Server) routeOf(op operation) route {
	for _, r := range related {
		rest, ok := strings.CutPrefix(op.path, r.path)
		if !ok {
			continue
		}
		name := r.name
		for _, part := range strings.Split(rest, "/") {
			if part != "" && part != "*" {
				name += "." + part
			}
		}
		if strings.HasSuffix(rest, "/") {
			name += ".get"
		}
		return route{name: name, scope: r.scope}
	}
	panic("proxy: no route for " + op.path)
}

// oneOf serves an operation, and passes other methods of its path to others.
func (s *Server) oneOf(op operation, others handler) handler {
	return func(x *request, r *http.Request, arg string) error {
		switch {
		case r.Method != op.method:
			return others(x, r, arg)
		case op.lists != "":
			return s.objects.listThings(x, r, op)
		}
		return s.objects.relay(x, r, op, arg)
	}
}
