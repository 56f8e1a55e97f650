package providers

import "strings"

// ownMark stands between a pool and the org whose own account it is. No id of a
// configured pool has it.
const ownMark = "@"

// OwnPool names the pool of an org that uses its own credential: what one account
// may send and has been told is nothing to another.
func OwnPool(pool, org string) string { return pool + ownMark + org }

// SplitPool returns the configured pool that a pool derives from, and the org whose
// own it is; "" for a configured pool.
func SplitPool(id string) (pool, org string) {
	pool, org, _ = strings.Cut(id, ownMark)
	return pool, org
}
