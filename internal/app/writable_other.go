//go:build !unix

package app

// writable reports why this process cannot make files in a directory; here it cannot tell.
func writable(string) error { return nil }
