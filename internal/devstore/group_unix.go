//go:build unix && !linux

package devstore

import (
	"os/exec"
	"syscall"
)

// ownGroup shields a child from the terminal's signals.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
