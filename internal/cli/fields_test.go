package cli_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// TestEveryRuntimeFieldHasAFlag: the commands that change an org, a user, a key and a limit have a flag for each field
// that administrators can change, and show all fields that they do not show as the status.
func TestEveryRuntimeFieldHasAFlag(t *testing.T) {
	s := newSite(t, orgs)
	s.must("keys", "create", "alice-1", "--org", "acme", "--user", "alice")
	for _, c := range []struct {
		section         reflect.Type
		change, example string
	}{
		{reflect.TypeFor[settings.Org](), "orgs update", "orgs get acme"},
		{reflect.TypeFor[settings.User](), "users update", "users get alice --org acme"},
		{reflect.TypeFor[settings.Key](), "keys update", "keys get alice-1 --org acme"},
		{reflect.TypeFor[settings.Limit](), "limits set", ""},
	} {
		help, shown := s.must(append(strings.Fields(c.change), "--help")...), ""
		if c.example != "" {
			shown = s.must(strings.Fields(c.example)...)
		}
		var walk func(section reflect.Type, before string)
		walk = func(section reflect.Type, before string) {
			for _, f := range settings.RuntimeFields(section) {
				name := before + strings.ReplaceAll(f.Name, "_", "-")
				fact := strings.ReplaceAll(name, "-", " ") + " "
				switch {
				case f.Flag == "-":
					continue
				case settings.IsSection(f.Type) && f.Unset == "": // what can be off has one line while it is
					walk(f.Type, name+"-")
					continue
				case settings.IsSection(f.Type):
				case f.Flag != "":
					name = f.Flag
					fallthrough
				default:
					if !strings.Contains(help, " --"+name+" ") {
						t.Errorf("%s has no flag --%s in\n%s", c.change, name, help)
					}
				}
				if shown != "" && f.Unset+f.Default != "" && !strings.Contains(shown, "\n"+fact) {
					t.Errorf("%s does not show %q in\n%s", c.example, fact, shown)
				}
			}
		}
		walk(c.section, "")
	}
}
