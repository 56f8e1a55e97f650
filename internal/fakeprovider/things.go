package fakeprovider

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// thing is something that the provider stores: a conversation, a vector store, a container, an
// upload, or a part of one.
type thing struct {
	id     string
	list   string // path of its list, such as /v1/conversations/conv_x/items
	fields map[string]any
	bytes  int   // of a file or a vector store's content
	tokens int64 // of a conversation
}

// thingKinds are the id prefix and the object name, by the last word of the list.
var thingKinds = map[string][2]string{
	"conversations": {"conv_", "conversation"},
	"items":         {"msg_", "message"},
	"uploads":       {"upload_", "upload"},
	"parts":         {"part_", "upload.part"},
	"vector_stores": {"vs_", "vector_store"},
	"file_batches":  {"vsfb_", "vector_store.file_batch"},
	"containers":    {"cntr_", "container"},
	"files":         {"cfile_", "container.file"},
	"completions":   {"chatcmpl-", "chat.completion"},
}

// thingLists are the lists that are served.
var thingLists = []string{
	"/v1/conversations", "/v1/uploads", "/v1/vector_stores", "/v1/containers",
	"/v1/chat/completions",
}

// routeThing returns the handler for a path, or nil if it is not about things. After the list,
// ids and words alternate.
func routeThing(x *exchange) handler {
	path, method := x.r.URL.Path, x.r.Method
	if path == "/v1/chat/completions" && method != http.MethodGet {
		return nil
	}
	for _, list := range thingLists {
		rest, ok := strings.CutPrefix(path, list)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		parts := strings.Split(strings.Trim(rest, "/"), "/")
		switch last := parts[len(parts)-1]; {
		case last == "cancel", last == "complete":
			return func(x *exchange) error { return endThing(x, strings.TrimSuffix(path, "/"+last), last) }
		case last == "search":
			return searchThings
		case last == "content", last == "messages":
			return func(x *exchange) error { return sendThing(x, strings.TrimSuffix(path, "/"+last)) }
		case rest != "" && len(parts)%2 == 1:
			return func(x *exchange) error { return answerThing(x, path) }
		case method == http.MethodPost:
			return func(x *exchange) error { return makeThing(x, path) }
		}
		return func(x *exchange) error { return listThings(x, path) }
	}
	return nil
}

// KeepThing creates a thing as if another user of the account had, and returns its id. list is
// a path such as /v1/vector_stores.
func (s *Server) KeepThing(list string) string { return s.newThing(list, nil).id }

func (s *Server) newThing(list string, fields map[string]any) *thing {
	kind := thingKinds[list[strings.LastIndexByte(list, '/')+1:]]
	t := &thing{id: newID(kind[0]), list: list, fields: map[string]any{
		"object": kind[1], "created_at": time.Now().Unix(), "status": "completed", "metadata": map[string]any{},
	}}
	maps.Copy(t.fields, fields)
	t.fields["id"] = t.id
	s.mu.Lock()
	defer s.mu.Unlock()
	s.things = append(s.things, t)
	return t
}

// findThing returns the thing that a path names.
func (s *Server) findThing(path string) *thing {
	at := strings.LastIndexByte(path, '/')
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.things {
		if t.list == path[:at] && t.id == path[at+1:] {
			return t
		}
	}
	return nil
}

// under returns the thing that the list of a path belongs to, or nil for a top-level list.
func (s *Server) under(list string) *thing {
	if slices.Contains(thingLists, list) {
		return nil
	}
	return s.findThing(list[:strings.LastIndexByte(list, '/')])
}

// readThing reads the members of a request, and the size of the file in a form.
func readThing(x *exchange) (fields map[string]any, size int, err error) {
	fields = map[string]any{}
	if len(x.q.Body) == 0 {
		return fields, 0, nil
	}
	if !strings.HasPrefix(x.r.Header.Get("Content-Type"), "multipart/") {
		if err := json.Unmarshal(x.q.Body, &fields); err != nil {
			return nil, 0, invalid("", "", "We could not parse the JSON body of your request.")
		}
		return fields, 0, nil
	}
	form, files, err := x.q.form()
	if err != nil {
		return nil, 0, err
	}
	for name, value := range form {
		fields[name] = value
	}
	for _, f := range files {
		size += len(f.content)
	}
	return fields, size, nil
}

func makeThing(x *exchange, list string) error {
	fields, size, err := readThing(x)
	if err != nil {
		return err
	}
	owner := x.s.under(list)
	if owner == nil && !slices.Contains(thingLists, list) {
		return missing("thing", list)
	}
	ids, _ := fields["file_ids"].([]any)
	if one, ok := fields["file_id"].(string); ok {
		ids = append(ids, one)
	}
	for _, id := range ids {
		name, _ := id.(string)
		f := x.s.file(name)
		if f == nil {
			return missing("file", name)
		}
		size += f.Bytes
	}
	if items, ok := fields["items"].([]any); ok {
		return addItems(x, list, owner, fields, items)
	}
	t := x.s.newThing(list, fields)
	if name, ok := fields["file_id"].(string); ok && strings.HasPrefix(list, "/v1/vector_stores/") {
		x.s.rename(t, name)
	}
	x.s.change(func() {
		t.bytes += size
		if owner != nil {
			owner.bytes += size
		}
	})
	return x.show(x.s.shown(t), false)
}

// rename gives a thing an id chosen by the caller.
func (s *Server) rename(t *thing, id string) {
	s.change(func() { t.id, t.fields["id"] = id, id })
}

// addItems adds the items of a conversation, which may be new itself.
func addItems(x *exchange, list string, conversation *thing, fields map[string]any, items []any) error {
	delete(fields, "items")
	if conversation == nil {
		conversation = x.s.newThing(list, fields)
		list += "/" + conversation.id + "/items"
	}
	var made []any
	for _, item := range items {
		members, _ := item.(map[string]any)
		made = append(made, x.s.shown(x.s.newThing(list, members)))
	}
	x.s.change(func() { conversation.tokens += countText("gpt-4o", string(encode(items))) })
	if strings.HasSuffix(x.r.URL.Path, "/items") {
		return x.show(map[string]any{"object": "list", "data": made, "has_more": false}, false)
	}
	return x.show(x.s.shown(conversation), false)
}

// shown returns a thing in the API's format.
func (s *Server) shown(t *thing) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.shown()
}

// shown needs the lock.
func (t *thing) shown() map[string]any {
	out := maps.Clone(t.fields)
	if t.fields["object"] == "vector_store" {
		out["usage_bytes"] = t.bytes
	} else if t.bytes > 0 {
		out["bytes"] = t.bytes
	}
	return out
}

func answerThing(x *exchange, path string) error {
	t := x.s.findThing(path)
	if t == nil {
		return missing("thing", path)
	}
	switch x.r.Method {
	case http.MethodDelete:
		x.s.change(func() {
			x.s.things = slices.DeleteFunc(x.s.things, func(other *thing) bool {
				return other == t || strings.HasPrefix(other.list, path+"/")
			})
		})
		return x.show(map[string]any{"id": t.id, "object": t.fields["object"], "deleted": true}, false)
	case http.MethodPost:
		fields, _, err := readThing(x)
		if err != nil {
			return err
		}
		x.s.change(func() { maps.Copy(t.fields, fields) })
	}
	return x.show(x.s.shown(t), false)
}

// listThings lists everything in a list, whoever created it.
func listThings(x *exchange, list string) error {
	if x.s.under(list) == nil && !slices.Contains(thingLists, list) {
		return missing("thing", list)
	}
	var all []map[string]any
	x.s.change(func() {
		for _, t := range slices.Backward(x.s.things) {
			if t.list == list {
				all = append(all, t.shown())
			}
		}
	})
	return x.show(pageOf(x.r, all, 100, func(t map[string]any) string { return t["id"].(string) }), false)
}

func sendThing(x *exchange, path string) error {
	if x.s.findThing(path) == nil {
		return missing("thing", path)
	}
	if strings.Contains(path, "/containers/") {
		return x.send("application/octet-stream", []byte("the file"), false)
	}
	return x.show(map[string]any{
		"object": "list",
		"data":   []any{map[string]any{"id": "part_1", "type": "text", "text": "the file"}}, "has_more": false,
	}, false)
}

func searchThings(x *exchange) error {
	if x.s.findThing(strings.TrimSuffix(x.r.URL.Path, "/search")) == nil {
		return missing("vector store", x.r.URL.Path)
	}
	return x.show(map[string]any{"object": "vector_store.search_results.page", "data": []any{}, "has_more": false}, false)
}

// endThing cancels or completes a thing.
func endThing(x *exchange, path, verb string) error {
	t := x.s.findThing(path)
	if t == nil {
		return missing("thing", path)
	}
	out := x.s.shown(t)
	out["status"] = "cancelled"
	if verb == "complete" {
		name, _ := t.fields["filename"].(string)
		purpose, _ := t.fields["purpose"].(string)
		out["status"], out["file"] = "completed", x.s.keepFile(name, purpose, make([]byte, t.bytes))
	}
	return x.show(out, false)
}

// conversation returns the conversation named in a request to Responses.
func (q *Request) conversation(s *Server) (*thing, error) {
	var id string
	raw := q.fields["conversation"]
	if raw == nil {
		return nil, nil
	}
	if json.Unmarshal(raw, &id) != nil {
		var object struct{ ID string }
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, invalid("conversation", "invalid_type", "Invalid type for 'conversation'.")
		}
		id = object.ID
	}
	t := s.findThing("/v1/conversations/" + id)
	if t == nil {
		return nil, missing("conversation", id)
	}
	return t, nil
}
