package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
)

// TestAgentHeaders compares the table of docs/agents.md with the headers that are read.
func TestAgentHeaders(t *testing.T) {
	var labels, programs []string
	headers := map[[2]string][]string{}
	for _, h := range config.AgentHeaders() {
		at := [2]string{h.Label, h.Program}
		if headers[[2]string{h.Label}] == nil {
			labels = append(labels, h.Label)
		}
		if headers[[2]string{"", h.Program}] == nil {
			programs = append(programs, h.Program)
		}
		for _, key := range [][2]string{at, {h.Label}, {"", h.Program}} {
			headers[key] = append(headers[key], "`"+h.Header+"`")
		}
	}
	want := "| label | " + strings.Join(programs, " | ") + " |\n" + strings.Repeat("|---", len(programs)+1) + "|\n"
	for _, label := range labels {
		want += "| `" + label + "` |"
		for _, program := range programs {
			want += " " + strings.Join(headers[[2]string{label, program}], ", ") + " |"
		}
		want += "\n"
	}
	if page := filepath.Join(root, "docs", "agents.md"); !strings.Contains(read(t, page), want) {
		t.Errorf("%s does not have this table:\n%s", page, want)
	}
}
