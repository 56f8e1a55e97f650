//go:build linux || darwin || freebsd || netbsd || openbsd

package ledger

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock locks a file until it is closed or the process ends.
func tryLock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errNotOurs
	}
	if err != nil {
		return fmt.Errorf("ledger: export: lock %s: %w", file.Name(), err)
	}
	return nil
}
