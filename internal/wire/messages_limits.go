package wire

import (
	"net/http"
	"strconv"
	"time"
)

// day is the longest window that callers of Messages see as their short one.
const day = 24 * time.Hour

// setMessages writes the headers in which callers of Messages expect limits: of those that count requests and tokens,
// and the share of the one that binds first. Claude Code warns of it at three quarters.
func setMessages(h http.Header, limits []LimitState, now time.Time) {
	for _, unit := range [...]struct{ unit, name string }{{UnitRequests, "Requests"}, {UnitTokens, "Tokens"}} {
		if l := bindingOf(limits, unit.unit); l != nil {
			setAnthropic(h, unit.name, l, now)
		}
	}
	setUnified(h, binding(limits), now)
}

// bindingOf is binding of the limits in a unit; nil if there is none.
func bindingOf(limits []LimitState, unit string) *LimitState {
	var first *LimitState
	for i := range limits {
		if l := &limits[i]; l.Unit == unit && (first == nil || l.tighter(first)) {
			first = l
		}
	}
	return first
}

func setAnthropic(h http.Header, name string, l *LimitState, now time.Time) {
	name = anthropic + name
	h[name+"-Limit"] = []string{strconv.FormatInt(max(l.Amount, 0), 10)}
	h[name+"-Remaining"] = []string{strconv.FormatInt(l.left(), 10)}
	if !l.Reset.IsZero() {
		h[name+"-Reset"] = []string{now.Add(time.Duration(l.seconds(now)) * time.Second).UTC().Format(time.RFC3339)}
	}
}

// warnShare is the part of a limit, in hundredths, from which it is reported as nearly used.
const warnShare = 75

// setUnified reports the used part of a limit as Claude's subscriptions do: a short window and a long one.
func setUnified(h http.Header, l *LimitState, now time.Time) {
	claim, window := "five_hour", "5h"
	if l.Window == 0 || l.Window > day {
		claim, window = "seven_day", "7d"
	}
	used, status := int64(100), "rejected"
	if l.Amount > 0 {
		used = 100 - l.left()*100/l.Amount
	}
	switch {
	case used < warnShare:
		status = "allowed"
	case l.left() > 0:
		status = "allowed_warning"
	}
	const unified = anthropic + "Unified-"
	h[unified+"Status"], h[unified+"Representative-Claim"] = []string{status}, []string{claim}
	h[unified+window+"-Status"] = []string{status}
	h[unified+window+"-Utilization"] = []string{strconv.FormatFloat(float64(used)/100, 'f', 2, 64)}
	if l.Reset.IsZero() {
		return
	}
	reset := strconv.FormatInt(now.Unix()+l.seconds(now), 10)
	h[unified+"Reset"], h[unified+window+"-Reset"] = []string{reset}, []string{reset}
}
