package devstore

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's signals from a child, and ends the child when the
// thread that started it ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
