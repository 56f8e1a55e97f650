package dialect

import "testing"

// TestSegment: no model's name leads to another path.
func TestSegment(t *testing.T) {
	for name, want := range map[string]string{
		"gpt-4o": "gpt-4o", "Our.Model_1": "Our.Model_1", "": "_", "..": "_", ".": "_",
		"a/../b": "a_.._b", "a?b#c%2f": "a_b_c_2f", "ü\n": "__",
	} {
		if got := Segment(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
