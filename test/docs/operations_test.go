package docs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/admin"
)

// operationsBelow separates the handwritten part of docs/admin-api.md from the generated one below.
const operationsBelow = "<!-- Generated from the table of operations by `make generate`. Do not edit below. -->\n"

// TestOperationsReference compares docs/admin-api.md with the table of operations; go generate writes it.
func TestOperationsReference(t *testing.T) {
	text := "\nEach request with its command, and the action in the audit:\n\n"
	for _, o := range admin.Operations() {
		text += operationRow(&o)
	}
	replaceBelow(t, filepath.Join(root, "docs", "admin-api.md"), operationsBelow, text)
}

var (
	// clause is the first clause of a summary. The rest is in the OpenAPI document, as are bodies.
	clause = regexp.MustCompile(`^[^;:.]+`)
	// operands are the arguments of a command, which its help explains.
	operands = regexp.MustCompile(` [\[A-Z].*`)
)

// operationRow describes an operation by its commands, which have a help text, or else by its summary.
func operationRow(o *admin.Operation) string {
	var queries, commands []string
	for _, in := range o.Inputs() {
		if in.In == "query" {
			queries = append(queries, in.Name+"=")
		}
	}
	request := strings.TrimSuffix(o.Method+" "+o.Path+"?"+strings.Join(queries, "&"), "?")
	for _, c := range o.Commands {
		commands = append(commands, "`"+operands.ReplaceAllLiteralString(c.Use, "")+"`")
	}
	text := cmp.Or(strings.Join(commands, ", "), clause.FindString(o.Summary))
	if o.Audit != "" {
		text += " (`" + o.Audit + "`)"
	}
	return fmt.Sprintf("- `%s`: %s\n", request, text)
}
