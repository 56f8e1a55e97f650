// Package lua holds the Redis scripts, one file each, and loads them.
//
// Every script is idempotent on an id given by the caller, takes its time from
// Redis TIME, touches only keys declared in KEYS (all of one hash tag), and
// returns numbers as decimal strings, because Redis cuts fractions off integer
// replies and Lua prints large numbers in exponent form.
package lua

import (
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var files embed.FS

// Load returns the script in <name>.lua with the library files prepended in
// the order given. It panics when a file is missing: names are constants of
// this module, so that is a build mistake.
func Load(name string, libs ...string) *redis.Script {
	var src strings.Builder
	for _, file := range append(libs, name) {
		text, err := files.ReadFile(file + ".lua")
		if err != nil {
			panic(fmt.Sprintf("lua: script %q: %v", name, err))
		}
		src.Write(text)
		src.WriteByte('\n')
	}
	return redis.NewScript(src.String())
}
