package keys_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

// A key is one word for people and tools: a double click selects it, and no shell, URL or
// header changes it.
func TestFormOfAKey(t *testing.T) {
	for class, prefix := range map[keys.Class]string{
		keys.Live: "lg_live_", keys.Test: "lg_test_",
		keys.Admin: "lg_admin_",
	} {
		text := keys.New(class)
		secret, ok := strings.CutPrefix(text, prefix)
		if !ok || len(secret) != 36 {
			t.Errorf("%s: got %q, want %s and 36 characters", class, text, prefix)
		}
		for _, r := range secret {
			if (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				t.Errorf("%s: got the character %q", class, r)
			}
		}
	}
}

// An error does not repeat the key, because the text may be a key with a typo, or a password.
func TestErrorsDoNotRepeatTheKey(t *testing.T) {
	good := keys.New(keys.Live)
	for _, text := range []string{
		good[:len(good)-1], good + "x", "hunter2", good[:30] + "~" + good[31:],
		"LG" + good[2:],
	} {
		_, err := keys.Check(text)
		if err == nil {
			t.Errorf("%q: got no error", text)
			continue
		}
		if strings.Contains(err.Error(), text) || strings.Contains(err.Error(), good[8:20]) {
			t.Errorf("got the error %q with the key in it", err)
		}
	}
}

// A key is valid for one class: the prefix cannot be exchanged.
func TestClassCannotBeExchanged(t *testing.T) {
	for _, from := range []keys.Class{keys.Live, keys.Test, keys.Admin} {
		for _, to := range []keys.Class{keys.Live, keys.Test, keys.Admin} {
			text := strings.Replace(keys.New(from), string(from), string(to), 1)
			class, err := keys.Check(text)
			if (err == nil) != (from == to) || err == nil && class != to {
				t.Errorf("a key of %s as one of %s: got %q, %v", from, to, class, err)
			}
		}
	}
}

// A hash depends on the key, on the pepper's secret and on its id.
func TestHashesDiffer(t *testing.T) {
	a, b := keys.New(keys.Live), keys.New(keys.Live)
	seen := map[string]string{}
	for name, hash := range map[string]string{
		"a": keys.Hash(keys.Pepper{}, a), "b": keys.Hash(keys.Pepper{}, b),
		"a with p1": keys.Hash(keys.Pepper{ID: "p1", Secret: "s"},
			a), "a with p2": keys.Hash(keys.Pepper{ID: "p2", Secret: "s"}, a),
		"a with another secret": keys.Hash(keys.Pepper{ID: "p1", Secret: "t"},
			a), "b with p1": keys.Hash(keys.Pepper{ID: "p1", Secret: "s"}, b),
	} {
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s: got the same hash", name, other)
		}
		seen[hash] = name
		if strings.Contains(hash, a) || strings.Contains(hash, b) {
			t.Errorf("%s: got the key in the hash %s", name, hash)
		}
	}
	again := keys.Hash(keys.Pepper{ID: "p1", Secret: "s"}, a)
	if keys.Hash(keys.Pepper{ID: "p1", Secret: "s"}, a) != again {
		t.Error("the same key twice: got two hashes")
	}
}

func TestAppendHash(t *testing.T) {
	text := keys.New(keys.Live)
	for _, p := range []keys.Pepper{{}, {ID: "p1", Secret: "secret"}} {
		got := keys.AppendHash([]byte("before "), p, text)
		want := "before " + keys.Hash(p, text)
		if !bytes.Equal(got, []byte(want)) {
			t.Errorf("pepper %q: got %s, want %s", p.ID, got, want)
		}
	}
}

func TestEqualAny(t *testing.T) {
	for _, tc := range []struct {
		hashes []string
		stored string
		want   bool
	}{
		{[]string{"sha256:a", "p1:b"}, "sha256:a", true},
		{[]string{"sha256:a", "p1:b"}, "p1:b", true},
		{[]string{"sha256:a", "p1:b"}, "p1:a", false},
		{[]string{"sha256:a"}, "sha256:aa", false},
		{[]string{"sha256:a"}, "", false},
		{nil, "sha256:a", false},
	} {
		got := keys.EqualAny(tc.hashes, tc.stored)
		if got != tc.want {
			t.Errorf("%q among %q: got %v, want %v", tc.stored, tc.hashes, got, tc.want)
		}
	}
}
