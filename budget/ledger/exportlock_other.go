//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package ledger

import "os"

// tryLock does nothing, because this platform has no flock; only the lease in Redis protects the
// files.
func tryLock(*os.File) error { return nil }
