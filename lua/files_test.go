package lua_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/lua"
)

// sources returns the text of each script by its name without ".lua".
func sources(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fs.Glob(lua.Files(), "*.lua")
	if err != nil || len(names) < 50 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(lua.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(name, ".lua")] = string(text)
	}
	return out
}

// TestFilesAreASCII: scripts are plain ASCII without tabs, carriage returns or trailing spaces.
func TestFilesAreASCII(t *testing.T) {
	for name, text := range sources(t) {
		for i, line := range strings.Split(text, "\n") {
			bad := strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' })
			if bad || strings.TrimRight(line, " ") != line {
				t.Errorf("%s.lua:%d: %q", name, i+1, line)
			}
		}
		if !strings.HasSuffix(text, "\n") {
			t.Errorf("%s.lua does not end with a line end", name)
		}
	}
}

var (
	library = regexp.MustCompile(`^-- Library: `)
	partOf  = regexp.MustCompile(`^-- Part of ([a-z_]+)`)
)

// TestFilesSayWhatTheyAre: the first line names the script or library, or the file that includes
// this one.
func TestFilesSayWhatTheyAre(t *testing.T) {
	all := sources(t)
	for name, text := range all {
		switch whole := partOf.FindStringSubmatch(text); {
		case library.MatchString(text), strings.HasPrefix(text, "-- "+name+": "):
		case whole != nil && strings.Contains(all[whole[1]], "--+ "+name+"\n"):
		default:
			t.Errorf("%s.lua begins with %q", name, strings.SplitN(text, "\n", 2)[0])
		}
	}
}

// TestScriptsNameTheirKeys: each script documents its keys and arguments, and uses no clock but
// Redis's.
func TestScriptsNameTheirKeys(t *testing.T) {
	for name, text := range sources(t) {
		for _, clock := range []string{"os.time", "os.clock", "math.random", "RANDOMKEY", "'KEYS'", "'SCAN'"} {
			if strings.Contains(text, clock) {
				t.Errorf("%s.lua has %s", name, clock)
			}
		}
		if library.MatchString(text) || partOf.MatchString(text) {
			continue
		}
		head, _, _ := strings.Cut(text, "\nlocal ")
		same := strings.Contains(head, "same KEYS") || regexp.MustCompile(`KEYS.* as (in|for)|as ending`).MatchString(head)
		if !strings.Contains(head, "KEYS") && !strings.Contains(head, "Libraries: ") && !same {
			t.Errorf("%s.lua does not say its KEYS:\n%s", name, head)
		}
	}
}

var (
	indexed = regexp.MustCompile(`\b(KEYS|ARGV)\[`)
	byPlace = regexp.MustCompile(`\b(KEYS|ARGV)\[\d+\]|unpack\((KEYS|ARGV)(, \d+)*\)|quota_limits\(\d+\)`)
)

// TestScriptsNameTheirArguments: a script reads its keys and arguments at its top, and all files
// name them: only a `local` statement uses an index.
func TestScriptsNameTheirArguments(t *testing.T) {
	for name, text := range sources(t) {
		if name == "rings" { // has pool_keys, which names them as fields
			continue
		}
		script := !library.MatchString(text) && !partOf.MatchString(text)
		top := true
		for i, line := range strings.Split(text, "\n") {
			code, _, _ := strings.Cut(line, "--")
			local := strings.HasPrefix(strings.TrimSpace(code), "local ")
			top = top && (local || strings.TrimSpace(code) == "" || strings.HasPrefix(code, "  "))
			if indexed.MatchString(code) && !local {
				t.Errorf("%s.lua:%d: not named: %s", name, i+1, line)
			}
			if script && !top && byPlace.MatchString(code) {
				t.Errorf("%s.lua:%d: not at the top: %s", name, i+1, line)
			}
		}
	}
}

// TestScriptsLoad: Redis accepts every script with its libraries, and no two are the same.
func TestScriptsLoad(t *testing.T) {
	rdb := redistest.Start(t).Client()
	seen := map[string]string{}
	load := func(name string, s *redisconn.Script) {
		t.Helper()
		hash, err := rdb.ScriptLoad(t.Context(), lua.Text(lua.Files(), name)).Result()
		if err != nil || hash != s.Hash() {
			t.Errorf("%s: %v", name, err)
		}
		if other := seen[hash]; other != "" {
			t.Errorf("%s is the same script as %s", name, other)
		}
		seen[hash] = name
	}
	all, used := sources(t), map[string]bool{}
	for name, libs := range lua.Libraries() {
		used[name] = true
		load(name, lua.Load(name))
		for _, lib := range libs {
			used[lib] = true
			if !library.MatchString(all[lib]) {
				t.Errorf("%s begins with %s, which is no library", name, lib)
			}
		}
	}
	for name, text := range all {
		if !used[name] && !library.MatchString(text) && !partOf.MatchString(text) {
			t.Errorf("%s.lua is used by nothing", name)
		}
	}
}

// TestUnknownScript: loading an unknown script panics, so a wrong name is noticed at startup.
func TestUnknownScript(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a script that does not exist was loaded")
		}
	}()
	lua.Load("no_such_script")
}
