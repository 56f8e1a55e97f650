package providers

import "strings"

// ownMark separates a pool from the org that uses it with its own account. No id of a configured
// pool contains it.
const ownMark = "@"

// OwnPool returns the pool of an org that uses its own credential, because quotas and what is
// learned about them are per account.
func OwnPool(pool, org string) string { return pool + ownMark + org }

// SplitPool returns the configured pool that a pool derives from, and the org it belongs to; "" for
// a configured pool.
func SplitPool(id string) (pool, org string) {
	pool, org, _ = strings.Cut(id, ownMark)
	return pool, org
}
