package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWaitsAreBounded: no test receives from a channel without a bound. Use redistest.Came, or a select with a
// timeout. Handlers and goroutines of a test, which have no testing.T of their own, may wait to be released.
func TestWaitsAreBounded(t *testing.T) {
	files := token.NewFileSet()
	root := filepath.FromSlash("../..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || name == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				unbounded(fn.Body, hasTest(fn.Type), func(at token.Pos) {
					t.Errorf("%s: wait with redistest.Came", files.Position(at))
				})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unbounded reports the receives of a function with a testing.T, and of those inside it, that nothing ends.
func unbounded(in ast.Node, tests bool, report func(token.Pos)) {
	ast.Inspect(in, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.FuncLit:
			unbounded(x.Body, hasTest(x.Type), report)
			return false
		case *ast.CommClause: // of a select; its other cases bound it
			for _, s := range x.Body {
				unbounded(s, tests, report)
			}
			return false
		case *ast.UnaryExpr:
			if x.Op == token.ARROW && tests && !ends(x.X) {
				report(x.Pos())
			}
		}
		return true
	})
}

// ends reports whether a channel is a timer's or a context's.
func ends(channel ast.Expr) bool {
	if call, ok := channel.(*ast.CallExpr); ok {
		channel = call.Fun
	}
	s, ok := channel.(*ast.SelectorExpr)
	return ok && (s.Sel.Name == "C" || s.Sel.Name == "Done" || s.Sel.Name == "After")
}

// hasTest reports whether a function has a parameter of package testing.
func hasTest(fn *ast.FuncType) bool {
	for _, p := range fn.Params.List {
		of := p.Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if s, ok := of.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "testing" {
				return true
			}
		}
	}
	return false
}
