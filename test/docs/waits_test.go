package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	pathpkg "path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// position says where code is.
type position struct {
	test      bool // directly in a function with a testing.T
	goroutine bool // in the function of a go statement
}

// unboundedWaits lists how tests wait without a bound, and what to write instead.
var unboundedWaits = []struct {
	name, instead string
	found         func(n ast.Node, in position) bool
}{
	{"a receive", "redistest.Came", func(n ast.Node, in position) bool {
		x, ok := n.(*ast.UnaryExpr)
		return ok && x.Op == token.ARROW && !ends(x.X, in)
	}},
	{"a select", "a case for a timeout", func(n ast.Node, in position) bool {
		x, ok := n.(*ast.SelectStmt)
		return ok && !slices.ContainsFunc(x.Body.List, func(s ast.Stmt) bool { return endsIn(s.(*ast.CommClause).Comm, in) })
	}},
	{"a loop over ticks", "redistest.Eventually", func(n ast.Node, _ position) bool {
		x, ok := n.(*ast.RangeStmt)
		return ok && slices.Contains([]string{"C", "Tick", "After"}, last(x.X))
	}},
	{"a polling loop", "redistest.Eventually", func(n ast.Node, in position) bool {
		x, ok := n.(*ast.ForStmt)
		return ok && polls(x) && (x.Cond == nil || x.Post == nil) && !looksAtTime(x, in)
	}},
	{"Wait", "redistest.Wait", func(n ast.Node, in position) bool {
		x, ok := n.(*ast.CallExpr)
		if !ok || in.goroutine || len(x.Args) > 0 || last(x.Fun) != "Wait" {
			return false
		}
		of := x.Fun.(*ast.SelectorExpr).X
		return !slices.Contains([]string{"synctest", "cmd", "child"}, last(of)) // a command ends, see below
	}},
	{"an HTTP client without a timeout", "an http.Client with a Timeout", func(n ast.Node, _ position) bool {
		switch x := n.(type) {
		case *ast.SelectorExpr:
			return slices.Contains([]string{"http.Get", "http.Head", "http.Post", "http.PostForm", "http.DefaultClient"}, qualified(x))
		case *ast.CompositeLit:
			return qualified(x.Type) == "http.Client" && !slices.ContainsFunc(x.Elts, func(e ast.Expr) bool {
				kv, ok := e.(*ast.KeyValueExpr)
				return ok && last(kv.Key) == "Timeout"
			})
		}
		return false
	}},
	{"a command", "redistest.Command or redistest.Process", func(n ast.Node, _ position) bool {
		x, ok := n.(*ast.CallExpr)
		if !ok {
			return false
		}
		name := qualified(x.Fun)
		return name == "exec.Command" || name == "exec.CommandContext" && ofTest(x.Args[0])
	}},
}

// supports lists the packages that are only in tests, beside _test.go files.
var supports = []string{"internal/redistest", "internal/storage/blobtest", "internal/world"}

// TestWaitsAreBounded: a test that waits without a bound for what never comes hangs the whole run. Where all
// goroutines are in a synctest bubble, as in test/simulation, a wait in vain ends the test immediately.
func TestWaitsAreBounded(t *testing.T) {
	files := token.NewFileSet()
	root := filepath.FromSlash("../..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case d.IsDir() && slices.Contains([]string{"node_modules", "testdata", ".git", "simulation"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go") &&
			!(strings.HasSuffix(name, ".go") && slices.Contains(supports, pathpkg.Dir(name))):
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			var in position
			if fn, ok := d.(*ast.FuncDecl); ok {
				in.test = hasTest(fn.Type)
			}
			unbounded(d, in, func(at token.Pos, name, instead string) {
				t.Errorf("%s: %s has no bound: use %s", files.Position(at), name, instead)
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unbounded reports the waits of a node that nothing ends.
func unbounded(node ast.Node, in position, report func(at token.Pos, name, instead string)) {
	ast.Inspect(node, func(n ast.Node) bool {
		for _, w := range unboundedWaits {
			if w.found(n, in) {
				report(n.Pos(), w.name, w.instead)
			}
		}
		switch x := n.(type) {
		case *ast.GoStmt:
			if fn, ok := x.Call.Fun.(*ast.FuncLit); ok {
				unbounded(fn.Body, position{goroutine: true}, report)
				return false
			}
		case *ast.FuncLit:
			unbounded(x.Body, position{test: hasTest(x.Type)}, report)
			return false
		case *ast.CommClause: // the other cases of its select bound it
			for _, s := range x.Body {
				unbounded(s, in, report)
			}
			return false
		case *ast.CallExpr: // redistest.Wait, which bounds the function
			return !(last(x.Fun) == "Wait" && len(x.Args) == 2)
		}
		return true
	})
}

// polls reports whether a loop sleeps, or does nothing but look at its condition.
func polls(loop *ast.ForStmt) bool {
	found := len(loop.Body.List) == 0
	ast.Inspect(loop, func(n ast.Node) bool {
		if x, ok := n.(*ast.SelectorExpr); ok && (qualified(x) == "time.Sleep" || qualified(x) == "runtime.Gosched") {
			found = true
		}
		_, fn := n.(*ast.FuncLit)
		return !fn
	})
	return found
}

// looksAtTime reports whether a loop looks at a clock, as a benchmark does, or at a context that can end.
func looksAtTime(loop *ast.ForStmt, in position) (ok bool) {
	ast.Inspect(loop, func(n ast.Node) bool {
		if s, is := n.(*ast.SelectorExpr); is {
			ok = ok || slices.Contains([]string{"Before", "After", "Since", "Until", "Loop"}, s.Sel.Name) ||
				s.Sel.Name == "Err" && !(in.test && ofTest(s.X))
		}
		return true
	})
	return ok
}

// endsIn reports whether a case of a select is its default, or a timer's or a context's.
func endsIn(comm ast.Stmt, in position) bool {
	if comm == nil {
		return true
	}
	receive, ok := comm.(*ast.ExprStmt)
	return ok && ends(receive.X.(*ast.UnaryExpr).X, in)
}

// ends reports whether a channel is a timer's or a context's. The context of a test does not end while it runs.
func ends(channel ast.Expr, in position) bool {
	call, ok := channel.(*ast.CallExpr)
	if !ok {
		return last(channel) == "C"
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (s.Sel.Name == "After" || s.Sel.Name == "Done" && !(in.test && ofTest(s.X)))
}

// ofTest reports whether a context is that of a testing.T.
func ofTest(ctx ast.Expr) bool {
	call, ok := ctx.(*ast.CallExpr)
	return ok && slices.Contains([]string{"t.Context", "b.Context", "tb.Context"}, qualified(call.Fun))
}

// last returns the last word of a name, or of a called one.
func last(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.CallExpr:
		return last(x.Fun)
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// qualified returns a name of a package.
func qualified(x ast.Expr) string {
	if s, ok := x.(*ast.SelectorExpr); ok {
		return last(s.X) + "." + s.Sel.Name
	}
	return ""
}

// hasTest reports whether a function has a parameter of package testing.
func hasTest(fn *ast.FuncType) bool {
	return slices.ContainsFunc(fn.Params.List, func(p *ast.Field) bool {
		of := p.Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		return strings.HasPrefix(qualified(of), "testing.")
	})
}
