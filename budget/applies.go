package budget

// Counts reports whether the limit counts a call by whose it is: the limit is on, and not for
// another user, key or address. Calls without a user or key share one counter, so that leaving
// the id out escapes nothing; a call whose address is unknown is in no limit per address. Models
// and endpoints are for the caller of this package.
func (l Limit) Counts(c Call) bool {
	return l.Mode != Off && (l.Subject != IP || c.IP != "") && l.isFor(c)
}

// Tells reports whether a call says whose use of the limit is meant, whatever its mode: that of
// the org, or of the user, key or address that it names.
func (l Limit) Tells(c Call) bool { return (l.Subject == Org || l.subjectOf(c) != "") && l.isFor(c) }

func (l Limit) isFor(c Call) bool { return l.Only == "" || l.Only == l.subjectOf(c) }
