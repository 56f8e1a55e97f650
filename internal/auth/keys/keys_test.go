package keys

import (
	"errors"
	"strings"
	"testing"
)

// A key as used in config files and scanner rules: its format is frozen.
const known = "lg_live_0123456789ABCDEFGHIJKLMNOPQRST1MiZzg"

func TestNewPassesCheck(t *testing.T) {
	seen := map[string]bool{}
	for _, class := range []Class{Live, Admin, Test} {
		for range 200 {
			text := New(class)
			got, err := Check(text)
			if err != nil || got != class {
				t.Fatalf("Check(%s) = %q, %v", text, got, err)
			}
			if want := len("lg_") + len(class) + 1 + 36; len(text) != want {
				t.Fatalf("%s has %d characters, want %d", text, len(text), want)
			}
			if seen[text] {
				t.Fatalf("%s was drawn twice", text)
			}
			seen[text] = true
		}
	}
}

func TestRandomUsesTheWholeAlphabet(t *testing.T) {
	text := random(200_000)
	for _, c := range alphabet {
		// 3,226 expected; the bounds are six standard deviations away.
		if n := strings.Count(text, string(c)); n < 2890 || n > 3560 {
			t.Errorf("%q came %d times of 200000", c, n)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want error
	}{
		"known":           {known, nil},
		"empty":           {"", ErrFormat},
		"openai key":      {"sk-proj-0123456789ABCDEFGHIJKLMNOPQRST1MiZzg", ErrFormat},
		"unknown class":   {"lg_root_0123456789ABCDEFGHIJKLMNOPQRST1MiZzg", ErrFormat},
		"class exchanged": {"lg_test_0123456789ABCDEFGHIJKLMNOPQRST1MiZzg", ErrChecksum},
		"admin exchanged": {"lg_admin_0123456789ABCDEFGHIJKLMNOPQRST1MiZzg", ErrChecksum},
		"short":           {known[:len(known)-1], ErrFormat},
		"long":            {known + "0", ErrFormat},
		"space":           {known[:20] + " " + known[21:], ErrFormat},
		"newline":         {known[:len(known)-1] + "\n", ErrFormat},
		"not ascii":       {known[:20] + "é" + known[22:], ErrFormat},
		"no separator":    {"lg_live", ErrFormat},
	} {
		if _, err := Check(tc.text); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

// Every single wrong character and every swap of neighbors is detected: CRC-32 finds all errors
// within 32 consecutive bits.
func TestChecksumCatchesTypos(t *testing.T) {
	for i := len("lg_live_"); i < len(known); i++ {
		for _, c := range alphabet {
			typo := known[:i] + string(c) + known[i+1:]
			if _, err := Check(typo); typo != known && err == nil {
				t.Errorf("%s passed", typo)
			}
		}
	}
	for i := len("lg_live_"); i+1 < len(known); i++ {
		swap := known[:i] + known[i+1:i+2] + known[i:i+1] + known[i+2:]
		if _, err := Check(swap); swap != known && err == nil {
			t.Errorf("%s passed", swap)
		}
	}
}

func TestHash(t *testing.T) {
	for _, tc := range []struct {
		pepper Pepper
		want   string
	}{
		// printf %s <key> | sha256sum; printf %s <key> | openssl dgst -sha256 -hmac secret
		{Pepper{}, "sha256:752635afd5948160abd3d4040d341ab7177893364e72433e622c722af3932720"},
		{Pepper{ID: "p1", Secret: "secret"}, "p1:8aaf149ef7113e44981c75bcc84b4b5bc53b8ba336c90933d4ecfd7e7a2ef30e"},
	} {
		if got := Hash(tc.pepper, known); got != tc.want {
			t.Errorf("Hash(%q) = %s, want %s", tc.pepper.ID, got, tc.want)
		}
	}
}

func TestNewRefusesUnknownClass(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	New("root")
}

func TestLast4(t *testing.T) {
	if got := Last4(known); got != "iZzg" {
		t.Errorf("Last4 = %q", got)
	}
	if got := Last4("short secret"); got != "" {
		t.Errorf("Last4 of a short text = %q", got)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(known)
	f.Add("lg_live_")
	f.Fuzz(func(t *testing.T, text string) {
		class, err := Check(text)
		if err == nil && (!class.known() || !strings.HasPrefix(text, "lg_"+string(class)+"_")) {
			t.Errorf("Check(%q) = %q", text, class)
		}
	})
}

func TestVouched(t *testing.T) {
	p1, p2 := Pepper{"p1", "one"}, Pepper{"p2", "two"}
	for _, p := range []Pepper{p1, p2, {}} {
		text := NewRun(p)
		if class, err := Check(text); class != Run || err != nil {
			t.Errorf("Check(%q) = %q, %v", text, class, err)
		}
		for _, other := range []Pepper{p1, p2, {}} {
			if got := Vouched(other, text); got != (other == p) {
				t.Errorf("created under %q: vouched under %q is %t", p.ID, other.ID, got)
			}
		}
		if Vouched(p, New(Run)) || Vouched(p, "") || Vouched(p, "lg_run_") {
			t.Error("another text is vouched for")
		}
	}
}
