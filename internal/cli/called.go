package cli

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/admin"
)

// called returns the command by which the user can run this program: its name if PATH leads to
// it, `go run` if that built it, otherwise its path. Printed commands use it.
func called() string {
	self, err := os.Executable()
	if err != nil {
		return "llmguard"
	}
	if found, err := exec.LookPath("llmguard"); err == nil && sameFile(found, self) {
		return "llmguard"
	}
	const source = "cmd/llmguard"
	if strings.Contains(self, string(filepath.Separator)+"go-build") {
		if _, err := os.Stat(filepath.Join(filepath.FromSlash(source), "main.go")); err == nil {
			return "go run ./" + source
		}
	}
	return admin.ShellWord(self)
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// checkAddress checks an address to listen on before anything starts.
func checkAddress(address string) error {
	_, text, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(text, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s: expected host:port with a port from 0 to 65535, such as 127.0.0.1:8080", address)
	}
	return nil
}

// freePorts limits how many ports are tried.
const freePorts = 50

// freeAddress returns address, or the next one with a free port. If none is free it returns
// address, and listening on it reports the error.
func freeAddress(address string) string {
	host, text, err := net.SplitHostPort(address)
	port, bad := strconv.Atoi(text)
	if err != nil || bad != nil || port == 0 {
		return address
	}
	for next := port; next < min(port+freePorts, 1<<16); next++ {
		at := net.JoinHostPort(host, strconv.Itoa(next))
		l, err := net.Listen("tcp", at)
		if err == nil {
			_ = l.Close()
			return at
		}
	}
	return address
}

func nextAddress(address string) string {
	host, text, _ := net.SplitHostPort(address)
	port, _ := strconv.Atoi(text)
	return net.JoinHostPort(host, strconv.Itoa(port+1))
}
