// Package diagnose finds problems with llmguard and its dependencies, and suggests fixes: the
// store, the providers, and the metrics of running processes. It changes nothing, spends no
// money, and reveals no secret.
package diagnose

import "time"

// OldPrices is the age in llmguard_pricing_age_seconds from which unchecked prices are suspect.
const OldPrices = 90 * 24 * time.Hour

// Level is the severity of a finding.
type Level string

// The levels.
const (
	OK      Level = "ok"      // checked and fine
	Warning Level = "warning" // works, but will cause trouble
	Error   Level = "error"   // does not work, or loses money or jobs
)

// Finding is the result of one check.
type Finding struct {
	Area  string `json:"area"` // config, prices, redis, a provider, a process
	Level Level  `json:"level"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"` // what to do about it
	// Position in the configuration, if known.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
	// Excerpt is the line at that position, with a caret.
	Excerpt string `json:"-"`
}

// Count returns the number of findings of a level.
func Count(list []Finding, level Level) int {
	n := 0
	for _, f := range list {
		if f.Level == level {
			n++
		}
	}
	return n
}
