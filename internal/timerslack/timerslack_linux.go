package timerslack

import (
	"math"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Widen gives every thread of this process a slack of Width. Threads have the slack of
// the one that started them, and the watcher is older than main: so it widens its own
// and starts the program anew in the same process, with the same id, arguments and open
// files. It then does not return. Call it first in main, before signals are handled.
//
// It returns, and all goes on as it was, where the slack is as wide already (systemd's
// TimerSlackNSec, or started anew), Variable says "keep", or the kernel refuses.
func Widen() {
	value := os.Getenv(Variable)
	if value == done {
		os.Unsetenv(Variable) // children decide for themselves
		return
	}
	if value == "keep" || !widened() {
		return
	}
	path, err := os.Executable()
	if err != nil {
		return
	}
	// With an error the program is what it was.
	_ = os.Setenv(Variable, done)
	_ = unix.Exec(path, os.Args, os.Environ())
	_ = os.Setenv(Variable, value)
}

// widened widens the slack of this thread, which stays locked to its goroutine then;
// false when there is nothing to do or the kernel keeps what it has.
func widened() bool {
	runtime.LockOSThread()
	if slack() < int(Width) && setSlack(Width) {
		return true
	}
	runtime.UnlockOSThread()
	return false
}

// slack returns the slack of this thread in nanoseconds, or more than Width where the
// kernel does not tell.
func slack() int {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return math.MaxInt
	}
	return n
}

// setSlack sets the slack of this thread, and reports whether it is that now.
func setSlack(d time.Duration) bool {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0) == nil && slack() == int(d)
}
