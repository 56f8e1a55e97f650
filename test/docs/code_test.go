package docs

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/providers"
)

// TestConditionsChangeNothing: the init part of an if only declares variables. Assignments,
// counting and calls for their effect would be overlooked there.
func TestConditionsChangeNothing(t *testing.T) {
	eachFile(t, func(_ string, files *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			i, ok := n.(*ast.IfStmt)
			if !ok || i.Init == nil {
				return true
			}
			if a, ok := i.Init.(*ast.AssignStmt); !ok || a.Tok != token.DEFINE {
				t.Errorf("%s: the init part of this if changes something: make it a statement", files.Position(i.Pos()))
			}
			return true
		})
	})
}

// eachFile calls visit for every Go file of the product.
func eachFile(t *testing.T, visit func(dir string, files *token.FileSet, f *ast.File)) {
	t.Helper()
	files := token.NewFileSet()
	root := os.DirFS(filepath.FromSlash("../.."))
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || path == "test" || name != "." && name[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(filepath.Dir(path)), files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// machineTimes are the forms of times that programs read. Those for people are in internal/figures.
var machineTimes = []string{
	"time.RFC3339", "time.RFC3339Nano", "time.DateOnly",
	`"2006-01"`,                         // a month in JSON
	`"20060102"`,                        // a day in a key of Redis
	`"20060102T150405Z"`,                // a file name
	"inputLayout", `"2006-01-02T15:04"`, // of HTML's datetime-local
	"untilFormat", // of an HTML form
}

var templateTime = regexp.MustCompile(`\.Format ("[^"]*")`)

// TestTimesForPeopleAreFigures: one package decides how people read a time, so that all say their zone.
func TestTimesForPeopleAreFigures(t *testing.T) {
	check := func(at any, layout string) {
		if !slices.Contains(machineTimes, layout) {
			t.Errorf("%v: Format(%s): use a function of internal/figures", at, layout)
		}
	}
	eachFile(t, func(dir string, files *token.FileSet, f *ast.File) {
		if dir == "internal/figures" || strings.HasPrefix(dir, "bench") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 || !slices.Contains([]string{"Format", "AppendFormat"}, last(call.Fun)) {
				return true
			}
			layout := call.Args[len(call.Args)-1]
			text := cmp.Or(qualified(layout), last(layout))
			if literal, ok := layout.(*ast.BasicLit); ok {
				text = literal.Value
			}
			check(files.Position(call.Pos()), text)
			return true
		})
	})
	for _, path := range files(t, ".html") {
		for _, m := range templateTime.FindAllStringSubmatch(read(t, path), -1) {
			check(path, m[1])
		}
	}
}

// TestDialectsDecide: only the dialects know the kinds of providers. No other file of the product compares a kind, or asks
// which dialect a provider has. The vendors in price lists have some of the same names.
func TestDialectsDecide(t *testing.T) {
	kinds := providers.Kinds(nil)
	isKind := func(e ast.Expr) bool {
		lit, ok := e.(*ast.BasicLit)
		return ok && slices.Contains(kinds, strings.Trim(lit.Value, `"`))
	}
	selects := func(e ast.Expr, name string) bool {
		s, ok := e.(*ast.SelectorExpr)
		return ok && s.Sel.Name == name
	}
	eachFile(t, func(dir string, files *token.FileSet, f *ast.File) {
		if dir == "pricing" || dir == "providers" || strings.HasPrefix(dir, "providers/") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			wrong := false
			switch n := n.(type) {
			case *ast.BinaryExpr:
				compares := n.Op == token.EQL || n.Op == token.NEQ
				wrong = compares && (isKind(n.X) && !selects(n.Y, "Provider") || isKind(n.Y) && !selects(n.X, "Provider") ||
					selects(n.X, "Dialect") || selects(n.Y, "Dialect"))
			case *ast.CaseClause:
				wrong = slices.ContainsFunc(n.List, isKind)
			case *ast.TypeAssertExpr:
				wrong = selects(n.X, "Dialect")
			}
			if wrong {
				t.Errorf("%s: this asks for a kind of providers: let the dialect decide", files.Position(n.Pos()))
			}
			return true
		})
	})
}
