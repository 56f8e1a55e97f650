package docs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/admin"
)

// operationsBelow separates the handwritten part of docs/admin-api.md from the generated one below.
const operationsBelow = "<!-- Generated from the table of operations by `make generate`. Do not edit below. -->\n"

// TestOperationsReference compares docs/admin-api.md with the table of operations; go generate writes it.
func TestOperationsReference(t *testing.T) {
	path := filepath.Join(root, "docs", "admin-api.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(text), operationsBelow)
	if !found {
		t.Fatalf("%s has lost its line %q", path, operationsBelow)
	}
	want := head + operationsBelow
	for _, o := range admin.Operations() {
		want += "\n" + operationText(&o)
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not what the table of operations says; run make generate", path)
	}
}

// operationText describes an operation.
func operationText(o *admin.Operation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s. `%s %s`\n\n", o.Name, o.Summary, o.Method, o.Path)
	for _, in := range o.Inputs() {
		if in.In != "path" {
			fmt.Fprintf(&b, "- `%s` (%s): %s\n", in.Name, in.In, cmp.Or(in.Text, in.Help))
		}
	}
	var commands, pages []string
	for _, c := range o.Commands {
		commands = append(commands, "`llmguard "+c.Use+"`")
	}
	for _, p := range o.Pages {
		pages = append(pages, strings.ToLower(p.Title[:1])+p.Title[1:])
	}
	fmt.Fprintf(&b, "- Command: %s\n", cmp.Or(strings.Join(commands, ", "), "none; "+o.Without))
	if o.Audit != "" {
		fmt.Fprintf(&b, "- Audit: `%s`\n", o.Audit)
	}
	if o.Writes {
		fmt.Fprintf(&b, "- Console: %s\n", cmp.Or(strings.Join(pages, ", "), "no page; "+o.NoPage))
	}
	return b.String()
}
