package dialect

import "strings"

// Segment makes a name a single path segment: the model is chosen by the caller and must not lead
// to another path. Characters that deployment names cannot have become _.
func Segment(name string) string {
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, name)
	if strings.Trim(name, ".") == "" {
		return "_"
	}
	return name
}
