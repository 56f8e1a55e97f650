//go:build unix

package app

import "syscall"

// writable reports why this process cannot make files in a directory.
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}
