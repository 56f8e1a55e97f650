//go:build linux || darwin || freebsd || netbsd || openbsd

package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock locks a file until it is closed or the process ends.
func tryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errTaken
	}
	if err != nil {
		return fmt.Errorf("journal: lock %s: %w", f.Name(), err)
	}
	return nil
}
