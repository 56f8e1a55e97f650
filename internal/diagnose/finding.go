// Package diagnose reports what is wrong with what llmguard needs and with llmguard itself, and
// how to fix it: the store, the providers, and the metrics of processes that run. It changes
// nothing, spends no money, and repeats
// no secret.
package diagnose

import "time"

// OldPrices is the age in llmguard_pricing_age_seconds from which prices that nobody has checked are suspect.
const OldPrices = 90 * 24 * time.Hour

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
