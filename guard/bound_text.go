package guard

import (
	"fmt"
	"strings"
)

// namedUsers is how many users a text names.
const namedUsers = 5

// Warning says that nothing bounds what an org, or some of its users, can spend.
func (b Bound) Warning(org string) string {
	if len(b.Users) == 0 {
		return "nothing bounds what org " + org +
			" can spend: no limit of cost, tokens or requests is enforced for all its calls"
	}
	count, names := "1 user", strings.Join(b.Users[:min(namedUsers, len(b.Users))], ", ")
	if n := len(b.Users); n > 1 {
		count = fmt.Sprintf("%d users", n)
	}
	if n := len(b.Users) - namedUsers; n > 0 {
		names += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("nothing bounds what %s of org %s can spend: %s", count, org, names)
}

// BoundFix is what to do about it.
func BoundFix(org string) string {
	return "Set a limit: llmguard limits set month --org " + org +
		" --amount '$100' --calendar month. For every org: --org all, or defaults.limits in the file."
}
