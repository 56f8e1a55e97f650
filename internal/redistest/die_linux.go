package redistest

import "syscall"

// dieWithParent ends a server if the test binary dies without its cleanup, as after a panic or
// the timeout of go test.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
