package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAnswers compares the responses of every operation with the document, and the audit with
// what was done. Each group of steps depends on those before it.
func TestAnswers(t *testing.T) {
	p := start(t)
	w := walk{process: p, doc: p.document(t), seen: map[string]bool{}}
	for _, group := range []struct {
		name  string
		steps []step
	}{
		{"orgs", orgSteps},
		{"users", userSteps},
		{"keys", keySteps},
		{"limits", limitSteps},
		{"credentials", credentialSteps},
		{"removal", removalSteps},
		{"other", otherSteps},
		{"work", workSteps},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, s := range group.steps {
				t.Run(s.String(), func(t *testing.T) { w.take(t, s) })
			}
		})
	}
	t.Run("every operation", func(t *testing.T) {
		for _, name := range w.doc.operations() {
			if !w.seen[name] {
				t.Errorf("no answer of %s was compared", name)
			}
		}
	})
	t.Run("audit", w.audit)
}

// walk runs steps and records what they did.
type walk struct {
	process
	doc      *document
	seen     map[string]bool // operations
	override string          // id of the last one
	secrets  []string        // of created keys
	actions  []string        // expected in the audit
}

// take sends a step's request and validates the response.
func (w *walk) take(t *testing.T, s step) {
	t.Helper()
	w.seen[s.String()] = true
	path := strings.ReplaceAll(s.path, "{override}", w.override)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	status, answer := w.do(t, s.method, path, strings.ReplaceAll(s.body, "{until}", until))
	if status != s.status {
		t.Fatalf("%s %s: got status %d, %s; want %d", s.method, path, status, answer, s.status)
	}
	w.doc.validate(t, s, answer)
	var made struct{ ID, Secret string }
	_ = json.Unmarshal([]byte(answer), &made) // lists have neither
	if s.action == "limit.override" {
		w.override = made.ID
	}
	if made.Secret != "" {
		w.secrets = append(w.secrets, made.Secret)
	}
	if s.action != "" {
		w.actions = append(w.actions, s.action)
	}
}

// audit checks that the audit has every change, newest first, with the actor and without
// secrets.
func (w *walk) audit(t *testing.T) {
	_, text := w.do(t, "GET", "/audit?org=globex&limit=1000", "")
	if len(w.secrets) < 2 {
		t.Errorf("got %d secrets of keys, want one of a new key and one of a rotated key", len(w.secrets))
	}
	for _, secret := range append(w.secrets, providerSecret, `"hash"`, "sha256:") {
		if strings.Contains(text, secret) {
			t.Errorf("the audit contains %q: %s", secret, text)
		}
	}
	var list struct {
		Data []struct {
			Action, Actor string
			RequestID     string `json:"request_id"`
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Data {
		got = append(got, e.Action)
		if e.Actor != "ops" || e.RequestID == "" {
			t.Errorf("an entry of the audit: got %+v, want the actor ops and a request id", e)
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, w.actions) {
		t.Errorf("the audit has\n%v\nwant\n%v", got, w.actions)
	}
}
