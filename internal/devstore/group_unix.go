//go:build unix && !linux

package devstore

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's signals from a child.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
