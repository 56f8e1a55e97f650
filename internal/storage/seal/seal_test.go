package seal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func ring(t *testing.T, ids ...string) *Ring {
	t.Helper()
	var keys []Key
	for _, id := range ids {
		keys = append(keys, Key{ID: id, Secret: "the secret of the key " + id})
	}
	r, err := NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealOpens(t *testing.T) {
	r := ring(t, "new", "old")
	for _, plain := range []string{"", "{}", strings.Repeat("prompt ", 10_000), "\x00lg1 looks sealed"} {
		sealed := r.Seal([]byte(plain), "acme", "job_1")
		if bytes.Contains(sealed, []byte("prompt")) {
			t.Error("the text shows")
		}
		if got, err := r.Open(sealed, "acme", "job_1"); err != nil || string(got) != plain {
			t.Errorf("%.20q became %.20q, %v", plain, got, err)
		}
		if bytes.Equal(sealed, r.Seal([]byte(plain), "acme", "job_1")) {
			t.Error("sealed twice, it looks the same")
		}
	}
}

// TestRotation: a text encrypted with an older key opens as long as the ring has the key.
func TestRotation(t *testing.T) {
	sealed := ring(t, "old").Seal([]byte("x"))
	if got, err := ring(t, "new", "old").Open(sealed); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	for name, r := range map[string]*Ring{"other": ring(t, "new"), "none": nil} {
		if got, err := r.Open(sealed); !errors.Is(err, ErrNoKey) || got != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	same, err := NewRing(Key{ID: "old", Secret: "another secret altogether"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := same.Open(sealed); !errors.Is(err, ErrBroken) || got != nil {
		t.Errorf("another secret of the same name: %q, %v", got, err)
	}
}

// TestElsewhere: a text opens only in its place, and only if complete.
func TestElsewhere(t *testing.T) {
	r := ring(t, "k")
	sealed := r.Seal([]byte("secret"), "acme", "job_1")
	for _, place := range [][]string{nil, {"acme"}, {"other", "job_1"}, {"acme", "job_2"}, {"acmejob_1"}, {"acme", "", "job_1"}} {
		if got, err := r.Open(sealed, place...); !errors.Is(err, ErrBroken) || got != nil {
			t.Errorf("at %q: %q, %v", place, got, err)
		}
	}
	for i := len(magic); i < len(sealed); i++ {
		broken := bytes.Clone(sealed)
		broken[i] ^= 1
		if got, err := r.Open(broken, "acme", "job_1"); err == nil || got != nil {
			t.Errorf("byte %d changed: %q, %v", i, got, err)
		}
		if got, err := r.Open(sealed[:i], "acme", "job_1"); err == nil || got != nil {
			t.Errorf("cut at %d: %q, %v", i, got, err)
		}
	}
}

// TestPlain: without keys texts are unchanged, and unencrypted texts open.
func TestPlain(t *testing.T) {
	none, err := NewRing()
	if err != nil || none != nil {
		t.Fatal(none, err)
	}
	if got := none.Seal([]byte("{}")); string(got) != "{}" {
		t.Errorf("%q", got)
	}
	for _, r := range []*Ring{none, ring(t, "k")} {
		if got, err := r.Open([]byte("{}"), "acme"); err != nil || string(got) != "{}" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestBadKeys(t *testing.T) {
	long := "a secret that is long enough"
	for want, keys := range map[string][]Key{
		"1 to 32 bytes": {{Secret: long}},
		"at least 16":   {{ID: "k", Secret: "short"}},
		"two keys":      {{ID: "k", Secret: long}, {ID: "k", Secret: long}},
	} {
		if _, err := NewRing(keys...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	r, err := NewRing(Key{ID: "k", Secret: "the secret of the key"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.Seal([]byte("x"), "p"))
	f.Add([]byte("\x00lg1"))
	f.Add([]byte("\x00lg1\xffk"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := r.Open(text, "q")
		if bytes.HasPrefix(text, magic) && (err == nil || got != nil) {
			t.Errorf("opened elsewhere: %q", got)
		}
	})
}
