package main

import (
	"strings"
	"testing"
)

// TestSpread: one org is on one master, or on all. The figures are not checked.
func TestSpread(t *testing.T) {
	var out strings.Builder
	if err := spread(t.Context(), []string{"-calls", "200", "-callers", "1,4", "-processes", "2"}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 14 {
		t.Errorf("got %d lines, want a table of 2 times 5 spreads:\n%s", lines, out.String())
	}
}
