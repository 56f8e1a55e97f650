package docs

import (
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
	text := "\n| request | what it does | command | in the audit |\n|---|---|---|---|\n"
	for _, o := range admin.Operations() {
		text += operationRow(&o)
	}
	replaceBelow(t, filepath.Join(root, "docs", "admin-api.md"), operationsBelow, text)
}

// clause is the first clause of a summary. The rest is in the OpenAPI document, as are bodies.
var clause = regexp.MustCompile(`^[^;:.]+`)

// operationRow describes an operation.
func operationRow(o *admin.Operation) string {
	request := o.Method + " " + o.Path
	separator := "?"
	for _, in := range o.Inputs() {
		if in.In == "query" {
			request += separator + in.Name + "="
			separator = "&"
		}
	}
	var commands []string
	for _, c := range o.Commands {
		commands = append(commands, "`"+c.Use+"`")
	}
	audit := ""
	if o.Audit != "" {
		audit = "`" + o.Audit + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", request, clause.FindString(o.Summary), strings.Join(commands, ", "), audit)
}
