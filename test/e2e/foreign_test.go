package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// foreigners returns, by kind, the ids of everything that acme has, each with an id of the same
// form that does not exist.
func (s *stack) foreigners(p *process) map[string][2]string {
	s.t.Helper()
	made := func(a answer) string {
		var v struct{ ID string }
		if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.ID == "" {
			s.t.Fatalf("%d %s", a.status, a.body)
		}
		return v.ID
	}
	key := s.keys["alice"]
	file := s.uploadLines(p, 1, "")
	ids := map[string]string{
		"file":       file,
		"batch":      s.batch(p, file),
		"job":        made(post(p.URL+"/chat/completions", key, chat("gpt-4o-mini", "hi", `"max_tokens":5`), "Prefer", "respond-async")),
		"response":   made(post(p.URL+"/responses", key, `{"model":"gpt-4o-mini","input":"hi","max_output_tokens":20,"store":true}`)),
		"background": made(post(p.URL+"/responses", key, `{"model":"gpt-4o-mini","input":"hi","max_output_tokens":20,"background":true,"store":true}`)),
	}
	out := map[string][2]string{"conversation": {"conv_68e0f3a1c5d08190a1", "conv_68e0f3a1c5d08190a2"}}
	for kind, id := range ids {
		last := "a"
		if strings.HasSuffix(id, last) {
			last = "b"
		}
		out[kind] = [2]string{id, id[:len(id)-1] + last}
	}
	return out
}

// TestForeignIDs: at every endpoint that takes an id, the response for another org's id is
// identical to that for an unknown id, byte for byte.
func TestForeignIDs(t *testing.T) {
	t.Parallel()
	s := batchStack(t, fakeprovider.Options{})
	p := s.proxy()
	ids := s.foreigners(p)
	ask := func(method, path, body string) func(id string) reply {
		return func(id string) reply {
			return p.do(s.keys["foreigner"], method, strings.ReplaceAll(path, "ID", id), strings.ReplaceAll(body, "ID", id))
		}
	}
	response := []func(string) reply{
		ask(http.MethodGet, "/responses/ID", ""), ask(http.MethodDelete, "/responses/ID", ""), ask(http.MethodGet, "/responses/ID?stream=true", ""),
		ask(http.MethodPost, "/responses/ID/cancel", ""), ask(http.MethodGet, "/responses/ID/input_items", ""),
		ask(http.MethodPost, "/responses", `{"model":"gpt-4o-mini","input":"hi","previous_response_id":"ID"}`),
	}
	for kind, asks := range map[string][]func(string) reply{
		"file": {
			ask(http.MethodGet, "/files/ID", ""), ask(http.MethodGet, "/files/ID/content", ""), ask(http.MethodDelete, "/files/ID", ""),
			ask(http.MethodPost, "/batches", `{"input_file_id":"ID","endpoint":"/v1/chat/completions","completion_window":"24h"}`),
		},
		"batch": {ask(http.MethodGet, "/batches/ID", ""), ask(http.MethodPost, "/batches/ID/cancel", "")},
		"job": {
			ask(http.MethodGet, "/jobs/ID", ""), ask(http.MethodDelete, "/jobs/ID", ""), ask(http.MethodPost, "/jobs/ID/cancel", ""),
			ask(http.MethodGet, "/jobs/ID/result", ""), ask(http.MethodGet, "/jobs/ID/events", ""),
		},
		"response":     response,
		"background":   response,
		"conversation": {ask(http.MethodPost, "/responses", `{"model":"gpt-4o-mini","input":"hi","conversation":"ID"}`)},
	} {
		for i, one := range asks {
			theirs, nobodys := one(ids[kind][0]), one(ids[kind][1])
			if theirs.status != http.StatusNotFound || nobodys.status != http.StatusNotFound ||
				strings.ReplaceAll(theirs.body, ids[kind][0], "ID") != strings.ReplaceAll(nobodys.body, ids[kind][1], "ID") {
				t.Errorf("%s, way %d: foreign %d %s\nnobody's %d %s", kind, i, theirs.status, theirs.body, nobodys.status, nobodys.body)
			}
		}
	}
	if a := get(p.URL+"/batches/"+ids["batch"][0], s.keys["alice"]); a.status != http.StatusOK || strings.Contains(a.body, `"status":"cancel`) {
		t.Errorf("its owner's batch: %d %s", a.status, a.body)
	}
}
