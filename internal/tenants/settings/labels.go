package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of labels, in bytes.
const (
	MaxLabelName  = 32
	MaxLabelValue = 128
)

// labelChars are allowed in values, besides letters and digits. None separates ids or records.
const labelChars = "._-:/@+=~#%"

// ownSubjects are what limits can count by besides labels, in the order of their combinations.
func ownSubjects() []string { return []string{"org", "group", "user", "key", "ip"} }

// RunBudget is what brakes can count by, and limits cannot: each run with a budget, with the runs inside it.
const RunBudget = "run-budget"

// CheckLabelName reports why a text cannot be the name of a label.
func CheckLabelName(name string) error {
	if slices.Contains(ownSubjects(), name) {
		return fmt.Errorf("%s cannot be the name of a label, because limits already count by it", name)
	}
	if !labelName(name) {
		return fmt.Errorf("%s cannot be the name of a label (1 to 32 of a-z, 0-9 and _)", Quote(name))
	}
	return nil
}

func labelName(name string) bool {
	return name != "" && len(name) <= MaxLabelName && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}) < 0
}

// ValidLabelValue reports whether a text can be the value of a label: 1 to 128 letters, digits and
// . _ - : / @ + = ~ # %.
func ValidLabelValue(value string) bool {
	return value != "" && len(value) <= MaxLabelValue && strings.IndexFunc(value, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune(labelChars, r)
	}) < 0
}

// maxSubjectParts is how many subjects a limit can combine.
const maxSubjectParts = 4

// ParseSubject returns the text form of a limit's subject, such as "user+session": the parts,
// which may be combinations themselves, in a fixed order, so that their order in the file does not
// matter.
func ParseSubject(parts ...string) (string, error) {
	var all []string
	for _, part := range parts {
		for one := range strings.SplitSeq(part, "+") {
			all = append(all, strings.TrimSpace(one))
		}
	}
	if slices.Equal(all, []string{RunBudget}) {
		return RunBudget, nil
	}
	own := ownSubjects()
	for i, part := range all {
		switch {
		case slices.Contains(all[:i], part):
			return "", fmt.Errorf("%s is there twice", Quote(part))
		case part == "org" && len(all) > 1:
			return "", errors.New("org cannot be combined, because every limit counts each org on its own; leave it out")
		case part == "group" && len(all) > 1:
			return "", errors.New("group cannot be combined with others; use one limit for the group and one for the others")
		case !slices.Contains(own, part) && !labelName(part):
			return "", fmt.Errorf("expected org, group, user, key, ip or the name of a label, got %s", Quote(part))
		}
	}
	if len(all) > maxSubjectParts {
		return "", fmt.Errorf("combines %d subjects; at most %d are possible", len(all), maxSubjectParts)
	}
	rank := func(part string) int {
		if i := slices.Index(own, part); i >= 0 {
			return i
		}
		return len(own)
	}
	slices.SortFunc(all, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return strings.Join(all, "+"), nil
}
