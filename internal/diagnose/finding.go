// Package diagnose looks at what llmguard needs and at llmguard itself, and says
// what is wrong and how to mend it: the store, the providers, prices, and the
// metrics of processes that run. It changes nothing, spends no money, and repeats
// no secret.
package diagnose

import "github.com/llmguard/llmguard/config"

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"      // looked at and right
	Warning Level = "warning" // works, and will hurt some day
	Error   Level = "error"   // does not work, or loses money or jobs
)

// Finding is one thing that was looked at.
type Finding struct {
	Area  string `json:"area"` // config, prices, redis, a provider, a process
	Level Level  `json:"level"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"` // what to do about it
	// Where in the configuration, when that is known.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
	// Excerpt is the line there, with a caret, for people.
	Excerpt string `json:"-"`
}

// Locate fills in where in the file findings are that name a path of the configuration. Without
// the file they have no place.
func Locate(cfg *config.Config, list []Finding) {
	places, err := config.LoadPlaces(cfg.Name)
	for i := range list {
		f := &list[i]
		if f.Path == "" || f.File != cfg.Name || f.Line > 0 || err != nil {
			continue
		}
		at := places.At(f.Path, f.What)
		f.Line, f.Column, f.Excerpt = at.Line, at.Column, at.Excerpt()
	}
}

// Count is how many findings are of a level.
func Count(list []Finding, level Level) int {
	n := 0
	for _, f := range list {
		if f.Level == level {
			n++
		}
	}
	return n
}
