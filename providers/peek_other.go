//go:build !unix

package providers

import "syscall"

const canPeek = false

func quiet(syscall.RawConn) bool { return false }
