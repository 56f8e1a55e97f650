package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
)

var (
	// codeArgument has the functions that make an error, with the place of the code among their arguments.
	codeArgument = map[string]int{
		"BadRequest": 1, "NotFound": 1, "Forbidden": 0, "Gone": 0, "braked": 0, "conflict": 0, "problem": 0, "problemOf": 1,
	}
	// otherCodes are the files with errors whose code is not a literal there: they copy the code of another error,
	// are functions of codeArgument, or have codes of wire.Objects or one of the expressions below.
	otherCodes = []string{
		"guard/references.go", "internal/admin/jobs.go", "internal/admin/orgs.go", "internal/batch/expand.go",
		"internal/batch/lines.go", "internal/batch/requests.go", "internal/wire/error.go", "internal/wire/failure.go",
		"internal/wire/refusal.go", "proxy/message_batches.go", "proxy/objects.go", "queue/job.go",
	}

	errorAnchor = regexp.MustCompile(`<a id="(\w+)">`)
	endCode     = regexp.MustCompile(`(?m)^\t\t"([a-z_]+)":\s+\{`) // in the map of queue's endError
	madeCode    = regexp.MustCompile(`\babsent\("(\w+)"`)          // of the admin API: what may already exist
	namedCode   = regexp.MustCompile(`(?:Code\w+|upstreamError)\s+= "([a-z_]+)"`)
)

// TestErrorsAreExplained: docs/errors.md has an anchor for each code that llmguard can send, to which its errors
// link, and none for other codes.
func TestErrorsAreExplained(t *testing.T) {
	page := filepath.Join(root, "docs", "errors.md")
	known := map[string]bool{}
	for _, m := range errorAnchor.FindAllStringSubmatch(read(t, page), -1) {
		if known[m[1]] {
			t.Errorf("%s has two anchors %s", page, m[1])
		}
		known[m[1]] = true
	}
	sent := sentCodes(t)
	for code, file := range sent {
		if !known[code] {
			t.Errorf("%s has no anchor for %s of %s", page, code, file)
		}
	}
	for code := range known {
		if sent[code] == "" {
			t.Errorf("%s explains %s, which no error has", page, code)
		}
	}
	if len(sent) < 150 {
		t.Errorf("only %d codes found in the code", len(sent))
	}
}

// sentCodes returns the codes of all errors in the code, each with a file that has it.
func sentCodes(t *testing.T) map[string]string {
	t.Helper()
	codes := map[string]string{}
	for _, o := range wire.Objects() {
		codes[o.Code()] = "internal/wire/objects.go"
	}
	for file, re := range map[string]*regexp.Regexp{
		"queue/job.go": endCode, "internal/wire/failure.go": namedCode, "internal/batch/results.go": namedCode,
	} {
		for _, m := range re.FindAllStringSubmatch(read(t, filepath.Join(root, file)), -1) {
			codes[m[1]] = file
		}
	}
	for _, path := range files(t, ".go") {
		name := name(t, path)
		first, _, _ := strings.Cut(name, "/")
		if strings.HasSuffix(name, "_test.go") || slices.Contains([]string{"bench", "examples", "test"}, first) ||
			strings.HasPrefix(name, "internal/fakeprovider/") || strings.HasPrefix(name, "internal/console/") {
			continue
		}
		for _, m := range madeCode.FindAllStringSubmatch(read(t, path), -1) {
			codes[m[1]+"_exists"] = name
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			code := codeOf(n)
			if code == nil {
				return true
			}
			if text, ok := literal(code); ok {
				codes[text] = name
			} else if !slices.Contains(otherCodes, name) {
				t.Errorf("%s: the code of an error is not a literal, so this test cannot know it", name)
			}
			return true
		})
	}
	delete(codes, "") // invalid JSON has none
	return codes
}

// codeOf returns the expression of an error's code, if n makes an error.
func codeOf(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		i, ok := codeArgument[called(n.Fun)]
		if ok && i < len(n.Args) {
			return n.Args[i]
		}
	case *ast.CompositeLit:
		if called(n.Type) != "Error" {
			return nil
		}
		for _, element := range n.Elts {
			member, ok := element.(*ast.KeyValueExpr)
			if ok && called(member.Key) == "Code" {
				return member.Value
			}
		}
	}
	return nil
}

// called returns the name of a function, type or member, without its package if that is wire.
func called(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if from, ok := e.X.(*ast.Ident); ok && from.Name == "wire" {
			return e.Sel.Name
		}
	}
	return ""
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
