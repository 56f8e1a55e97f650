package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

// keyView is what -o json prints.
type keyView struct {
	ID, Org, User, Name, Status, Secret, Last4, Source string
	Models, Scopes, Networks                           []string
	Concurrency                                        int64
	Expires                                            *time.Time
	OldUntil                                           *time.Time `json:"old_until"`
}

// TestKeysNew: the hash printed for the file matches the printed key and the file's pepper.
func TestKeysNew(t *testing.T) {
	peppered := filepath.Join(t.TempDir(), "llmguard.yaml")
	writeFile(t, peppered, "auth: {peppers: [{id: p1, secret: 0123456789abcdef0123456789abcdef}]}\nproviders: [{id: a, base_url: \"http://h\"}]\norgs: [{id: a}]\n")
	for _, test := range []struct {
		args   []string
		id     string
		pepper keys.Pepper
	}{
		{nil, "key-1", keys.Pepper{}},
		{[]string{"--id", "laptop"}, "laptop", keys.Pepper{}},
		{[]string{"-c", peppered}, "key-1", keys.Pepper{ID: "p1", Secret: "0123456789abcdef0123456789abcdef"}},
	} {
		out, _, code := llmguard(t, append([]string{"keys", "new"}, test.args...)...)
		_, rest, _ := strings.Cut(out, "key (shown only once): ")
		key, _, _ := strings.Cut(rest, "\n")
		want := "- id: " + test.id + "\n      hash: " + keys.Hash(test.pepper, key) + "\n"
		if code != 0 || !strings.HasPrefix(key, "lg_live_") || !strings.Contains(out, want) {
			t.Errorf("keys new %v: exit code %d, want %q in\n%s", test.args, code, want, out)
		}
	}
	first, _, _ := llmguard(t, "keys", "new")
	if second, _, _ := llmguard(t, "keys", "new"); first == second {
		t.Error("two keys are equal")
	}
}

// TestHostileNames: control characters in user-chosen names are not printed.
func TestHostileNames(t *testing.T) {
	s := newSite(t, orgs)
	name := "x\x1b[31mred\u202e"
	s.must("users", "create", "eve", "--org", "acme", "--name", "plain")
	_, notes, code := llmguard(t, "users", "update", "eve", "--org", "acme", "--name", name, "-c", s.file)
	if strings.ContainsAny(notes, "\x1b\u202e") {
		t.Errorf("the refusal repeats control characters: %q", notes)
	}
	if out := s.must("users", "list", "--org", "acme"); code == 0 && strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("the table has control characters: %q", out)
	}
}
