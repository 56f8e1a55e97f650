package wire

import (
	"slices"
	"strings"
	"testing"
)

// TestObjectRows: no two rows claim the same kind, path, member or prefix of ids, a member is written as it is compared, and
// the routes of a row are below its path and have a scope.
func TestObjectRows(t *testing.T) {
	seen := map[string]ObjectKind{}
	claim := func(o *Object, what string) {
		t.Helper()
		if other, ok := seen[what]; ok {
			t.Errorf("%s: %s is claimed by %s, too", o.Kind, what, other)
		}
		seen[what] = o.Kind
	}
	for _, o := range Objects() {
		claim(o, "kind "+string(o.Kind))
		for _, id := range o.IDs {
			claim(o, "id "+id)
		}
		for _, name := range o.Members {
			claim(o, "member "+name)
			var buf [maxFolded]byte
			if folded, ok := fold(buf[:0], []byte(name)); !ok || string(folded) != name {
				t.Errorf("%s: no member is compared as %q", o.Kind, name)
			}
		}
		if (o.Path == "") != (len(o.Routes) == 0) || (o.Path == "") != (o.Scope == "") {
			t.Errorf("%s has path %q, scope %q and %d routes", o.Kind, o.Path, o.Scope, len(o.Routes))
		}
		if o.Private && o.Storage != "" {
			t.Errorf("%s: private objects are in lists of users, where their storage is not found", o.Kind)
		}
	}
	for _, op := range Operations() {
		claim(op.Object, op.Method+" "+op.Path)
		if op.Path != op.Object.Path && !strings.HasPrefix(op.Path, op.Object.Path+"/") {
			t.Errorf("%s: %s is not below %s", op.Object.Kind, op.Path, op.Object.Path)
		}
		if !slices.Contains([]string{"GET", "POST", "DELETE"}, op.Method) {
			t.Errorf("%s: a route with method %q", op.Object.Kind, op.Method)
		}
	}
	for kind, want := range map[ObjectKind]string{
		ObjectUpload: "POST /uploads/x_1/cancel", ObjectContainer: "DELETE /containers/x_1",
		ObjectCompletion: "DELETE /chat/completions/x_1", ObjectUploadPart: "",
	} {
		got := ""
		if op := kind.Object().Discard("x_1"); op != nil {
			got = op.Method + " " + op.Path
		}
		if got != want {
			t.Errorf("%s is removed by %q, want %q", kind, got, want)
		}
	}
}
