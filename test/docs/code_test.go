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
