package child

import "syscall"

// dieWithParent terminates a child if the benchmark is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
