package gateway

import "syscall"

// ownGroup starts a child in a process group of its own. The child gets SIGTERM when the suite dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
