// Package lua holds the Redis scripts, one file each, and loads them.
//
// Every script is idempotent on an id given by the caller, takes its time from
// Redis TIME, touches only keys declared in KEYS (all of one hash tag), and
// returns numbers as decimal strings, because Redis cuts fractions off integer
// replies and Lua prints large numbers in exponent form.
//
// Its first comment lists KEYS and ARGV. Next it reads them into locals, in that order.
package lua

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var files embed.FS

// Files are the scripts and libraries as they stand in the files.
func Files() fs.FS { return files }

// Load returns the script in <name>.lua with its libraries before it. It panics when a
// file is missing: names are constants of this module, so that is a build mistake.
func Load(name string) *redis.Script { return LoadFrom(files, name) }

// LoadFrom is Load from other files than those of this package.
func LoadFrom(from fs.FS, name string) *redis.Script { return redis.NewScript(Text(from, name)) }

// Text is the script as Redis gets it.
func Text(from fs.FS, name string) string {
	list, ok := libraries[name]
	if !ok {
		panic(fmt.Sprintf("lua: no script %q in libraries.go", name))
	}
	var out strings.Builder
	for _, file := range list {
		out.WriteString(read(from, file) + "\n")
	}
	out.WriteString(read(from, name) + "\n")
	return out.String()
}

// Texts are the scripts as Redis gets them, by name.
func Texts() map[string]string {
	out := map[string]string{}
	for name := range libraries {
		out[name] = Text(files, name)
	}
	return out
}

// include is what a line begins with that stands for the file it names: functions of rare
// branches are defined there, because Redis defines every function anew in every run.
const include = "--+ "

// read returns a file with those that it includes.
func read(from fs.FS, name string) string {
	text, err := fs.ReadFile(from, name+".lua")
	if err != nil {
		panic(fmt.Sprintf("lua: script %q: %v", name, err))
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
