// Package lua contains the Redis scripts, one file each, and loads them.
//
// Every script is idempotent on an id given by the caller, takes its time from Redis TIME, uses
// only keys declared in KEYS (all of one hash tag), and returns numbers as decimal strings, because
// Redis truncates fractions of integer replies and Lua prints large numbers in exponent form.
//
// The first comment of a script lists KEYS and ARGV; the code then starts by reading them into
// locals, in that order.
package lua

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/llmguard/llmguard/internal/redisconn"
)

//go:embed *.lua
var files embed.FS

// Files returns the script and library files unchanged.
func Files() fs.FS { return files }

// Load returns the script in <name>.lua with its libraries prepended; files are read when it is first used. It panics
// if there is no such script: names are constants of this module, so that is a programming error.
func Load(name string) *redisconn.Script { return LoadFrom(files, name) }

// LoadFrom is Load from other files than those of this package.
func LoadFrom(from fs.FS, name string) *redisconn.Script {
	mustExist(name)
	return redisconn.ScriptOf(func() string { return Text(from, name) })
}

func mustExist(name string) {
	if _, ok := libraries[name]; !ok {
		panic(fmt.Sprintf("lua: no script %q in libraries.go", name))
	}
}

// Text returns the script as it is sent to Redis.
func Text(from fs.FS, name string) string {
	mustExist(name)
	var out strings.Builder
	for _, file := range libraries[name] {
		out.WriteString(read(from, file) + "\n")
	}
	out.WriteString(read(from, name) + "\n")
	return out.String()
}

// Texts returns all scripts as they are sent to Redis, by name.
func Texts() map[string]string {
	out := map[string]string{}
	for name := range libraries {
		out[name] = Text(files, name)
	}
	return out
}

// include starts a line that is replaced by the file it names. Functions of rare branches are
// defined in such files, because Redis defines every function of a script again in every run.
const include = "--+ "

// read returns a file with its includes expanded.
func read(from fs.FS, name string) string {
	text, err := fs.ReadFile(from, name+".lua")
	if err != nil {
		panic(fmt.Sprintf("lua: script %q: %v", name, err))
	}
	if !bytes.Contains(text, []byte(include)) {
		return string(text)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), include); ok {
			line = read(from, file)
		}
		out.WriteString(line)
	}
	return out.String()
}
