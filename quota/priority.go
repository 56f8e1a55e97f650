package quota

import "fmt"

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
	switch {
	case p > Normal:
		return "high"
	case p < Normal:
		return "low"
	}
	return "normal"
}

// Mark returns how the scripts name a priority: h, l, or nothing for Normal.
func (p Priority) Mark() string {
	switch {
	case p > Normal:
		return "h"
	case p < Normal:
		return "l"
	}
	return ""
}

// ParsePriority is the inverse of String.
func ParsePriority(text string) (Priority, error) {
	for p := Low; p <= High; p++ {
		if p.String() == text {
			return p, nil
		}
	}
	return Normal, fmt.Errorf("a priority is high, normal or low, not %.60q", text)
}
