package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Brake is a rule over the calls of one user, key or value of a label. It stops or slows them when they do what When
// describes.
type Brake struct {
	Name string `yaml:"name,required" kind:"id" unique:"list"`
	// By is whose calls are counted and stopped together: each user, key, ip or value of a label, or each combination
	// in a list: [user, session]. run-budget: each run, with the runs inside it.
	By string `yaml:"by,required" kind:"subject"`
	// Shared counts and stops all users with a value together. Otherwise values from a header or the body count for
	// each user, so that no caller can stop others.
	Shared bool `yaml:"shared"`
	// When has exactly one rule.
	When BrakeWhen `yaml:"when"`
	// Action is what happens to calls with the same By. stop: they get 403 brake_stopped. ask: they get 403
	// approval_required. slow: they have low priority. shadow: the brake only reports.
	Action string `yaml:"action" default:"stop" enum:"stop,ask,slow,shadow"`
	// For is how long the action lasts, from the window of the rule to 30d. Default: until it is released, at
	// most 30 days.
	For time.Duration `yaml:"for"`
	// Models and Endpoints are patterns, as in limits; only matching calls are counted and stopped.
	Models    []string `yaml:"models" range:"1.." kind:"pattern"`
	Endpoints []string `yaml:"endpoints" range:"1.." kind:"endpoint"`
}

// BrakeWhen is what a brake fires at.
type BrakeWhen struct {
	Spend   BrakeSpend   `yaml:"spend"`
	Repeats BrakeRepeats `yaml:"repeats"`
	Calls   BrakeCalls   `yaml:"calls"`
}

// Rule names the rule that is set: spend, repeats or calls.
func (w BrakeWhen) Rule() string {
	switch {
	case w.Repeats.MoreThan > 0:
		return "repeats"
	case w.Calls.MoreThan > 0:
		return "calls"
	}
	return "spend"
}

// Window returns the window of the rule that is set.
func (w BrakeWhen) Window() time.Duration {
	switch w.Rule() {
	case "repeats":
		return w.Repeats.Window
	case "calls":
		return w.Calls.Window
	}
	return w.Spend.Window
}

// BrakeSpend is spend above the usual: the larger of two means per window, the subject's over its last 24 windows,
// and all others' that have a call in this window.
type BrakeSpend struct {
	// Window is the sliding window.
	Window time.Duration `yaml:"window" default:"10m" range:"1m..1d"`
	// Above is how many times the usual may be spent in a window.
	Above string `yaml:"above" default:"5x"`
	// Floor may be spent in a window in any case.
	Floor Quantity `yaml:"floor" default:"$1" kind:"money"`
}

// BrakeRepeats is one request sent many times: the same endpoint and JSON body, without members such as seed, user
// and metadata.
type BrakeRepeats struct {
	// MoreThan is how often it may be answered in a sliding Window.
	MoreThan int64         `yaml:"more_than" range:"1..1000M"`
	Window   time.Duration `yaml:"window" default:"5m" range:"10s..1d"`
}

// BrakeCalls is too many calls.
type BrakeCalls struct {
	// MoreThan is how many calls may be made in a sliding Window.
	MoreThan int64         `yaml:"more_than" range:"1..1000M"`
	Window   time.Duration `yaml:"window" default:"1d" range:"10s..7d"`
}

// OrgBrakes returns the brakes of an org: those of all orgs, except those replaced by name, and the org's
// own.
func OrgBrakes(all, own []Brake) []Brake { return replaced(all, own) }

// MaxBrakeLife is how long a brake that is not released stays in effect, because runs do not return.
const MaxBrakeLife = 30 * 24 * time.Hour

// maxFactor is the largest factor in thousandths.
const maxFactor = 1_000_000

// ParseFactor parses 5x and 1.5x into thousandths.
func ParseFactor(text string) (int64, error) {
	wrong := fmt.Errorf("expected a factor from 1.1x to 1000x such as 5x, got %s", Quote(text))
	digits, ok := strings.CutSuffix(text, "x")
	whole, fraction, _ := strings.Cut(digits, ".")
	if !ok || len(fraction) > 3 {
		return 0, wrong
	}
	n, err := strconv.ParseUint(whole+(fraction + "000")[:3], 10, 32)
	if err != nil || n < 1100 || n > maxFactor {
		return 0, wrong
	}
	return int64(n), nil
}
