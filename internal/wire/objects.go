package wire

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ObjectKind is a kind of object that a provider stores, as in records of owners and in errors.
type ObjectKind string

// The kinds of objects.
const (
	ObjectResponse     ObjectKind = "response"
	ObjectItem         ObjectKind = "item" // of the input or output of a response
	ObjectConversation ObjectKind = "conversation"
	ObjectFile         ObjectKind = "file"
	ObjectUpload       ObjectKind = "upload"
	ObjectUploadPart   ObjectKind = "upload_part"
	ObjectVectorStore  ObjectKind = "vector_store"
	ObjectContainer    ObjectKind = "container"
	ObjectCompletion   ObjectKind = "chat.completion" // created with store: true
	ObjectPrompt       ObjectKind = "prompt"
	ObjectSkill        ObjectKind = "skill"
)

// Object is the row of a kind of object: everything about it but what a call is charged for its content.
// Routes, scopes, mentions in requests, checks and records of owners, and fees follow from it.
type Object struct {
	Kind ObjectKind
	// IDs are the prefixes by which ids are found in any string of a request, and Members the names of
	// members that hold ids, in the form of fold.
	IDs, Members []string
	// Missing is the code of the error if a request names one that its org does not have; default: the
	// kind and _not_found.
	Missing string
	// Private means that only the user who created it sees it; others may for other kinds. Continued
	// means that others of the org may name it in requests all the same.
	Private, Continued bool
	// Lasting means that the provider stores it until it is deleted, not for a month.
	Lasting bool
	// Here means that this proxy stores some of them: a handler of its own serves the routes.
	Here bool

	// Path is where they are listed, without /v1. The routes are this path and those below.
	Path   string
	Scope  string // of keys, for all routes
	Routes []ObjectRoute

	// Storage is the catalogue's entry of a megabyte for a day, for kinds that are not private, and Session
	// what running one costs; "" and nil are free.
	Storage string
	Session *Session
}

// ObjectRoute is a path, and what a request to it does.
type ObjectRoute struct {
	// Serves is methods and a path, as in served.
	Serves string
	// Makes is what it creates. POST to the list creates an object of the list.
	Makes ObjectKind
	// File is the part of a form that may have a file; "": the body is JSON.
	File string
	// Adds means that files it names are stored in the object, and Fee is the catalogue's entry of the request.
	Adds bool
	Fee  string
}

// Session is how running an object costs money.
type Session struct {
	Entry string        // of the catalogue; the size follows
	Lasts time.Duration // for one fee
	Sizes []string      // of memory; the first is the default
}

// objects are the rows. Conversations, completions, ... are explained in docs/openai-api.md.
var objects = []*Object{
	{
		Kind: ObjectResponse, Missing: "previous_response_not_found", Private: true, Continued: true, Here: true,
		Path: "/responses", Scope: "responses", Routes: []ObjectRoute{
			{Serves: "GET,DELETE /responses/"},
			{Serves: "POST /responses/*/cancel"},
			{Serves: "GET /responses/*/input_items"},
		},
	},
	{Kind: ObjectItem, Members: []string{"approvalrequestid"}},
	{
		Kind: ObjectCompletion, Private: true, Path: "/chat/completions", Scope: "chat.completions",
		Routes: []ObjectRoute{
			{Serves: "GET /chat/completions"},
			{Serves: "GET,POST,DELETE /chat/completions/"},
			{Serves: "GET /chat/completions/*/messages"},
		},
	},
	{
		Kind: ObjectConversation, Members: []string{"conversationid", "previousresponseid", "threadid"},
		Private: true, Lasting: true, Path: "/conversations", Scope: "responses", Routes: []ObjectRoute{
			{Serves: "POST /conversations"},
			{Serves: "GET,POST,DELETE /conversations/"},
			{Serves: "POST,GET /conversations/*/items"},
			{Serves: "GET,DELETE /conversations/*/items/"},
		},
	},
	{
		Kind: ObjectFile, IDs: []string{"file-", "file_"}, Members: []string{
			"fileid", "fileids", "inputfileid", "documentid", "documentids", "uploadid", "cachedcontent",
		},
		Lasting: true, Here: true, Path: "/files", Scope: "files", Routes: []ObjectRoute{
			{Serves: "GET /files"},
			{Serves: "POST /files", File: "file"},
			{Serves: "GET,DELETE /files/"},
			{Serves: "GET /files/*/content"},
		},
	},
	{
		Kind: ObjectUpload, Path: "/uploads", Scope: "files", Routes: []ObjectRoute{
			{Serves: "POST /uploads"},
			{Serves: "POST /uploads/*/parts", Makes: ObjectUploadPart, File: "data"},
			{Serves: "POST /uploads/*/complete", Makes: ObjectFile},
			{Serves: "POST /uploads/*/cancel"},
		},
	},
	{Kind: ObjectUploadPart},
	{
		Kind: ObjectVectorStore, IDs: []string{"vs_"}, Members: []string{
			"vectorstoreid", "vectorstoreids", "libraryid", "libraryids", "collectionid", "collectionids",
		},
		Lasting: true, Storage: "vector-store-storage", Path: "/vector_stores", Scope: "vector_stores",
		Routes: []ObjectRoute{
			{Serves: "POST /vector_stores", Adds: true},
			{Serves: "GET /vector_stores"},
			{Serves: "GET,POST,DELETE /vector_stores/"},
			{Serves: "POST /vector_stores/*/search", Fee: "vector-store-search"},
			{Serves: "POST /vector_stores/*/files", Adds: true},
			{Serves: "GET /vector_stores/*/files"},
			{Serves: "GET,POST,DELETE /vector_stores/*/files/"},
			{Serves: "GET /vector_stores/*/files/*/content"},
			{Serves: "POST /vector_stores/*/file_batches", Adds: true},
			{Serves: "GET /vector_stores/*/file_batches/"},
			{Serves: "POST /vector_stores/*/file_batches/*/cancel"},
			{Serves: "GET /vector_stores/*/file_batches/*/files"},
		},
	},
	{
		Kind: ObjectContainer, IDs: []string{"cntr_"}, Members: []string{"container", "containerid"},
		Session: &Session{Entry: "container-", Lasts: 20 * time.Minute, Sizes: []string{"1g", "4g", "16g", "64g"}},
		Path:    "/containers", Scope: "containers", Routes: []ObjectRoute{
			{Serves: "POST,GET /containers"},
			{Serves: "GET,DELETE /containers/"},
			{Serves: "POST /containers/*/files", File: "file"},
			{Serves: "GET /containers/*/files"},
			{Serves: "GET,DELETE /containers/*/files/"},
			{Serves: "GET /containers/*/files/*/content"},
		},
	},
	{Kind: ObjectPrompt, Members: []string{"promptid"}}, // the operator lists them
	{Kind: ObjectSkill, Members: []string{"skillid"}},   // nobody has any
}

// Objects returns the rows, which must not be modified.
func Objects() []*Object { return objects }

// Object returns the row of a kind, a zero row if it has none.
func (k ObjectKind) Object() *Object {
	at := slices.IndexFunc(objects, func(o *Object) bool { return o.Kind == k })
	if at < 0 {
		return &Object{Kind: k}
	}
	return objects[at]
}

// Words returns the kind as texts name it.
func (k ObjectKind) Words() string { return strings.NewReplacer("_", " ", ".", " ").Replace(string(k)) }

// Code returns the code of the error if a request names one that its org does not have.
func (o *Object) Code() string {
	return cmp.Or(o.Missing, strings.ReplaceAll(string(o.Kind), ".", "_")+"_not_found")
}

// Name returns the name of the kind's routes in limits, metrics and the ledger.
func (o *Object) Name() string { return strings.ReplaceAll(strings.Trim(o.Path, "/"), "/", ".") }

// Discard returns the operation that removes an object from its provider, with the id in its path; nil for a
// part of another object.
func (o *Object) Discard(id string) *Operation {
	for _, op := range Operations() {
		if op.Object == o && (op.Ends() || op.Path == o.Path+"/*/cancel") {
			op.Path = op.At(id)
			return &op
		}
	}
	return nil
}

// Size returns a size of a session, or its default if size is ""; the error names the sizes.
func (s *Session) Size(size string) (string, error) {
	if size == "" || slices.Contains(s.Sizes, size) {
		return cmp.Or(size, s.Sizes[0]), nil
	}
	return "", BadRequest("memory_limit", "invalid_value", "memory_limit must be one of %s", strings.Join(s.Sizes, ", "))
}

// Operation is one method of a route.
type Operation struct {
	ObjectRoute
	Object       *Object
	Method, Path string
}

// Operations returns the operations of all objects, by method and path as in served. Several methods of a
// path stand in the order of the rows.
func Operations() []Operation {
	var list []Operation
	for _, o := range objects {
		for _, r := range o.Routes {
			methods, path, _ := strings.Cut(r.Serves, " ")
			for method := range strings.SplitSeq(methods, ",") {
				op := Operation{ObjectRoute: r, Object: o, Method: method, Path: path}
				if path == o.Path && method == http.MethodPost {
					op.Makes = o.Kind
				}
				list = append(list, op)
			}
		}
	}
	return list
}

// At returns the path of the operation with ids in the places of its pattern, in their order.
func (op *Operation) At(ids ...string) string {
	parts := strings.Split(op.Path, "/")
	for i, part := range parts[1:] {
		if part == "*" || part == "" {
			parts[i+1], ids = ids[0], ids[1:]
		}
	}
	return strings.Join(parts, "/")
}

// PlainID reports whether an id can be inserted into a path unchanged.
func PlainID(id string) bool {
	return id != "" && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// Of reports whether it is about one object, whose id is the first in the path.
func (op *Operation) Of() bool { return op.Path != op.Object.Path }

// Lists reports whether it lists the objects.
func (op *Operation) Lists() bool { return !op.Of() && op.Method == http.MethodGet }

// Whole reports whether it is about the object itself, not a part of it.
func (op *Operation) Whole() bool { return op.Path == op.Object.Path+"/" }

// Ends reports whether it deletes the object.
func (op *Operation) Ends() bool { return op.Whole() && op.Method == http.MethodDelete }

// Costs reports whether it may cost money.
func (op *Operation) Costs() bool {
	return op.Fee != "" || op.Adds || op.Object.Session != nil && !op.Lists() && !op.Ends()
}
