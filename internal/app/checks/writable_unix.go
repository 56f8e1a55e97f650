//go:build unix

package checks

import "syscall"

// writable reports why this process cannot create files in a directory.
func writable(dir string) error {
	const write, search = 2, 1
	return syscall.Access(dir, write|search)
}
