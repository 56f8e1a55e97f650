// Command luacheck runs luacheck on the scripts as Redis receives them, each preceded by its
// libraries. It exits with 1 if luacheck reports anything.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/llmguard/llmguard/lua"
)

func main() {
	if err := check(); err != nil {
		fmt.Fprintln(os.Stderr, "luacheck:", err)
		os.Exit(1)
	}
}

func check() error {
	dir, err := os.MkdirTemp("", "llmguard-lua-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, text := range lua.Texts() {
		if err := os.WriteFile(filepath.Join(dir, name+".lua"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	config, err := filepath.Abs("luacheck/luacheckrc")
	if err != nil {
		return err
	}
	command := exec.Command("luacheck", "--config", config, "--no-color", "--codes", "-q", ".")
	command.Dir, command.Stdout, command.Stderr = dir, os.Stdout, os.Stderr
	return command.Run()
}
