package devstore

import (
	"os/exec"
	"syscall"
)

// ownGroup shields a child from the terminal's signals, and ends the child when the thread that
// started it ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
