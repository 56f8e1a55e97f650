package settings

import (
	"slices"
	"testing"
)

// TestNear: what was meant is found despite typos, case, punctuation, prefixes and other programs' words.
func TestNear(t *testing.T) {
	models := []string{"gpt-4o", "gpt-4o-mini", "o3-mini", "claude-sonnet-4-5"}
	fields := []string{"name", "amount", "window", "calendar", "tz"}
	for _, c := range []struct {
		typed string
		known []string
		want  string
	}{
		{"gpt-4o-mnii", models, "gpt-4o-mini"},
		{"GPT4o", models, "gpt-4o"},
		{"claude-sonnet-4.5", models, "claude-sonnet-4-5"},
		{"o3mini", models, "o3-mini"},
		{"openai/gpt-4o", models, "gpt-4o"},
		{"llama-3-70b", models, ""},
		{"time_zone", fields, "tz"},
		{"budget", fields, "amount"},
		{"period", fields, "window"},
		{"x", fields, ""},
		{"", fields, ""},
	} {
		near := Near(c.typed, c.known)
		if len(near) == 0 && c.want != "" || len(near) > 0 && near[0] != c.want {
			t.Errorf("%s: got %v, want %s first", c.typed, near, c.want)
		}
	}
	if near := Near("gpt-5", []string{"gpt-4", "gpt-6", "gpt-5.1", "gpt-1", "o1"}); len(near) != 3 || slices.Contains(near, "o1") {
		t.Errorf("got %v, want the three most similar", near)
	}
}
