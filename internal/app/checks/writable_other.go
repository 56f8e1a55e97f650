//go:build !unix

package checks

// writable reports why this process cannot create files in a directory. It never does on
// this system, which has no such check.
func writable(string) error { return nil }
