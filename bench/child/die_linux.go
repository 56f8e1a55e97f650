package child

import "syscall"

// dieWithParent ends a child when the benchmark is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
