//go:build unix

package providers

import "syscall"

// canPeek says that quiet can tell.
const canPeek = true

// quiet reports whether a connection is open and nothing has come that nobody asked for.
func quiet(raw syscall.RawConn) bool {
	ok := false
	err := raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		ok = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true // do not wait
	})
	return ok && err == nil
}
