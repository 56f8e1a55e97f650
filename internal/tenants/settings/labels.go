package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	labelName  = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9._:/@+=~#%-]{1,128}$`)
)

// ownSubjects are what limits can count by besides labels, in the order of their combinations.
func ownSubjects() []string { return []string{"org", "user", "key", "ip"} }

// CheckLabelName reports why a text cannot be the name of a label.
func CheckLabelName(name string) error {
	if slices.Contains(ownSubjects(), name) {
		return fmt.Errorf("%s cannot be the name of a label, because limits already count by it", name)
	}
	if !labelName.MatchString(name) {
		return fmt.Errorf("%s cannot be the name of a label (1 to 32 of a-z, 0-9 and _)", Quote(name))
	}
	return nil
}

// ValidLabelValue reports whether a text can be the value of a label.
func ValidLabelValue(value string) bool { return labelValue.MatchString(value) }

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
	own := ownSubjects()
	for i, part := range all {
		switch {
		case slices.Contains(all[:i], part):
			return "", fmt.Errorf("%s is there twice", Quote(part))
		case part == "org" && len(all) > 1:
			return "", errors.New("org cannot be combined, because every limit counts each org on its own; leave it out")
		case !slices.Contains(own, part) && !labelName.MatchString(part):
			return "", fmt.Errorf("expected org, user, key, ip or the name of a label, got %s", Quote(part))
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
