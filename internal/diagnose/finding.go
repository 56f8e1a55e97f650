// Package diagnose finds problems with llmguard and its dependencies, and suggests fixes: the
// store, the providers, and the metrics of running processes. It changes nothing, spends no
// money, and reveals no secret. internal/app/checks lists its checks, and all others.
package diagnose

import (
	"cmp"
	"slices"
	"time"
)

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

// Finding is a result of a check.
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
	// Org, Pool and Target, a disabled target of the org's webhooks, are what it is about; empty: none of these.
	Org, Pool, Target string `json:"-"`
}

// Report collects the findings of checks.
type Report struct {
	Area     string // of the next findings
	Findings []Finding
}

// Add adds a finding; the result is valid until the next one.
func (r *Report) Add(level Level, what, fix string) *Finding {
	r.Findings = append(r.Findings, Finding{Area: r.Area, Level: level, What: what, Fix: fix})
	return &r.Findings[len(r.Findings)-1]
}

// At adds a finding about a path of the configuration.
func (r *Report) At(path string, level Level, what, fix string) {
	r.Add(level, path+": "+what, fix).Path = path
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

// Sort sorts errors first, then warnings, and otherwise keeps the order.
func Sort(list []Finding) {
	rank := map[Level]int{Error: 0, Warning: 1, OK: 2}
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
}
