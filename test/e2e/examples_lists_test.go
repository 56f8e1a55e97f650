package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/cli"
)

// examplesOfHelp returns the examples of all commands, except those that cannot run.
func examplesOfHelp() []string {
	var out []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			out = append(out, comment.ReplaceAllString(strings.TrimSpace(line), ""))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root())
	return out
}

// examplesOfDocs returns the commands in the shell blocks of the documents, and those inside
// runbook sentences.
func examplesOfDocs(t *testing.T) []string {
	var out []string
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") || strings.Contains(path, "decisions") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains([]string{"", "sh", "bash", "console"}, block[1]) {
				continue
			}
			whole := strings.ReplaceAll(block[2], "\\\n", " ")
			for line := range strings.Lines(whole) {
				if strings.HasPrefix(line, "llmguard ") && !strings.Contains(line, "UTC") {
					out = append(out, comment.ReplaceAllString(strings.TrimSpace(line), ""))
				}
			}
		}
		if strings.Contains(path, "operations/") {
			for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
				if words := strings.Fields(m[1]); len(words) > 3 { // shorter ones only name a command
					out = append(out, strings.Join(words, " "))
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
