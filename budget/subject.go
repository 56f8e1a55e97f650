package budget

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget/ledger"
)

// subjectJoin joins the parts of a Subject.
const subjectJoin = "+"

// subjectSep joins the ids of the parts of a subject; no value of a label has one.
const subjectSep = ","

// maxSubjectParts bounds the length of keys in Redis: 4 parts of the configuration, and the user of a brake.
const maxSubjectParts = 5

// Parts returns what the subject combines, in order.
func (s Subject) Parts() []string { return strings.Split(string(s), subjectJoin) }

// Labels returns the labels that the subject counts by.
func (s Subject) Labels() []string {
	switch s {
	case Org, UserGroup, User, Key, IP, RunBudget:
		return nil
	}
	return slices.DeleteFunc(s.Parts(), func(p string) bool { return !ledger.ValidLabelName(p) })
}

// Includes reports whether the subject is the part, or combines it with others.
func (s Subject) Includes(part Subject) bool {
	return s == part || strings.Contains(string(s), subjectJoin) && slices.Contains(s.Parts(), string(part))
}

var errSubject = errors.New("a subject is org, group, user, key, ip, a label, or up to 4 of the last four together")

func (s Subject) validate() error {
	switch s {
	case Org, UserGroup, User, Key, IP, RunBudget:
		return nil
	}
	parts := s.Parts()
	if len(parts) > maxSubjectParts {
		return errSubject
	}
	for i, part := range parts {
		switch Subject(part) {
		case User, Key, IP:
		case UserGroup:
			return fmt.Errorf("subject %q combines a group: %w", s, errSubject)
		default:
			if !ledger.ValidLabelName(part) {
				return fmt.Errorf("unknown subject %q: %w", s, errSubject)
			}
		}
		if slices.Contains(parts[:i], part) {
			return fmt.Errorf("subject %q has %s twice", s, part)
		}
	}
	return nil
}

// of returns the call's id for one part of a subject.
func (s Subject) of(c *ledger.Call) string {
	switch s {
	case Org:
		return ""
	case User:
		return c.User
	case Key:
		return c.Key
	case IP:
		return c.IP
	case RunBudget:
		return c.Run.Outermost()
	default:
		return c.Labels.Get(string(s))
	}
}

// ID returns the id whose usage the call adds to: that of its user, key or address, the value of
// its label, or those of a combination, joined with commas. Calls without it share one counter, so
// leaving it out does not evade a limit.
func (s Subject) ID(c ledger.Call) string {
	if !strings.Contains(string(s), subjectJoin) {
		return s.of(&c)
	}
	parts := s.Parts()
	for i, part := range parts {
		parts[i] = Subject(part).of(&c)
	}
	return strings.Join(parts, subjectSep)
}

// named reports whether the call has an id for each part of the subject.
func (s Subject) named(c *ledger.Call) bool {
	for _, part := range s.Parts() {
		if Subject(part) != Org && Subject(part).of(c) == "" {
			return false
		}
	}
	return true
}
