package quota

import (
	"cmp"
	"fmt"
)

// Priority orders the calls of an org: it decides who gets scarce quota, and whose turn is next in the
// queue. The zero value is Normal.
type Priority int8

// The priorities. A greater one comes first.
const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

// String returns high, normal or low.
func (p Priority) String() string {
	return [...]string{"low", "normal", "high"}[cmp.Compare(p, Normal)+1]
}

// Mark returns how the scripts name a priority: h, l, or nothing for Normal.
func (p Priority) Mark() string { return [...]string{"l", "", "h"}[cmp.Compare(p, Normal)+1] }

// ParsePriority is the inverse of String.
func ParsePriority(text string) (Priority, error) {
	for p := Low; p <= High; p++ {
		if p.String() == text {
			return p, nil
		}
	}
	return Normal, fmt.Errorf("a priority is high, normal or low, not %.60q", text)
}
