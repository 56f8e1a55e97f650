package budget

import "github.com/llmguard/llmguard/budget/ledger"

// Counts reports whether the limit counts the call: the limit is not Off, and is not for another
// user, key, address or label. Calls without a user, key or label share one counter, so leaving out the id does
// not evade the limit. A call with an unknown address is in no limit per address. Models and
// Endpoints are for the caller of this package to match.
func (l Limit) Counts(c ledger.Call) bool {
	return l.Mode != Off && (c.IP != "" || !l.Subject.Includes(IP)) && l.isFor(c)
}

// Tells reports whether the call names the subject that the limit counts, whatever the limit's
// mode: the org, or the user, key, address and labels in the call. A limit of a group names it itself.
func (l Limit) Tells(c ledger.Call) bool {
	switch l.Subject {
	case Org:
		return true
	case UserGroup:
		return l.Only != "" || c.User != ""
	}
	return l.Subject.named(&c) && l.isFor(c)
}

func (l Limit) isFor(c ledger.Call) bool { return l.names(l.Only, c) }

// names reports whether an id is the call's subject; "" is every subject.
func (l Limit) names(id string, c ledger.Call) bool {
	if l.Subject == IP {
		id = l.Network(id)
	}
	return id == "" || id == l.subjectOf(c)
}
