package budget

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Cause is why a call was refused or had to wait, as "kind:name", such as limit:daily or brake:wild-run.
type Cause string

// The kinds of causes, and what their name is.
const (
	CauseLimit    = "limit"    // a limit's id
	CauseCap      = "cap"      // a spend cap's limit's id
	CauseRequests = "requests" // the id of a limit on requests
	CauseBrake    = "brake"    // a brake's name
	CauseStop     = "stop"     // an org, or StopAll
	CauseRun      = "run"      // the limit of a run, not the run itself: these are too many to count
	CausePool     = "pool"     // a pool, whose quota is used up
	CauseQueue    = "queue"    // the scope that is full
	CauseMemory   = "memory"   // MemoryOrg, MemoryStore or MemoryProxy
	CauseProvider = "provider" // a provider that refused or failed
)

// Names that some kinds of causes have.
const (
	// StopAll is the name of the stop of all spending.
	StopAll = "all"
	// RunEnded is the name for calls of a run that has ended.
	RunEnded = "ended"
	// MemoryOrg is an org's share of Redis's memory, MemoryStore all of it, MemoryProxy a proxy's for bodies.
	MemoryOrg   = "org"
	MemoryStore = "store"
	MemoryProxy = "proxy"
)

// OtherCauses is the cause of lines beyond the bounds of the counts.
const OtherCauses Cause = ledger.OtherModels

// NewCause returns a cause.
func NewCause(kind, name string) Cause { return Cause(kind + ":" + name) }

// ParseCause reads a cause as it is stored. Versions before stored the bare id of a limit, and limits on
// requests as request:ID.
func ParseCause(text string) Cause {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case text == "" || text == string(OtherCauses):
		return Cause(text)
	case !named:
		return NewCause(CauseLimit, text)
	case kind == "request":
		return NewCause(CauseRequests, name)
	}
	return Cause(text)
}

// Kind returns the kind, such as CauseLimit.
func (c Cause) Kind() string {
	kind, _, _ := strings.Cut(string(c), ":")
	return kind
}

// Name returns what has the kind, such as a limit's id.
func (c Cause) Name() string {
	_, name, _ := strings.Cut(string(c), ":")
	return name
}

// Matches reports whether a filter selects the cause: it is empty, a kind, or the cause itself.
func (c Cause) Matches(filter string) bool {
	return filter == "" || filter == c.Kind() || filter == string(c)
}

// CauseKinds returns the kinds of causes, sorted.
func CauseKinds() []string { return slices.Sorted(maps.Keys(causeTexts)) }

// Public returns the cause for callers, who must not learn which spend cap of all orgs it is.
func (c Cause) Public() string {
	if c.Kind() == CauseCap {
		return CauseCap
	}
	return string(c)
}

// causeTexts are what causes are called in a sentence, and a sentence of its own.
var causeTexts = map[string]struct{ title, text string }{
	CauseLimit: {"the limit %s", "The limit %q had no capacity for the call."},
	CauseCap: {
		"the spend cap %s", "The spend cap %q, which several orgs share, had no capacity for the call.",
	},
	CauseRequests: {"the limit on requests %s", "The limit on requests %q was reached."},
	CauseBrake:    {"the brake %s", "The brake %q stopped the call."},
	CauseStop:     {"the stop of org %s", "An operator stopped the spending of %q."},
	CauseRun:      {"", "The limit %q of the call's run had no capacity for it."},
	CausePool:     {"the provider's quota of pool %s", "The provider's quota of pool %q was exhausted."},
	CauseQueue:    {"the full queue (%s)", "The queue was full (%q)."},
	CauseMemory:   {"the full memory of the %s", "There was no memory for the call (%q)."},
	CauseProvider: {"the provider %s", "The provider %q refused the call or failed."},
}

// Title returns what the cause is called in a sentence, such as: the limit daily.
func (c Cause) Title() string {
	switch title := causeTexts[c.Kind()].title; {
	case c == NewCause(CauseStop, StopAll):
		return "the stop of all spending"
	case c == CauseCap: // as Public returns it
		return "a spend cap"
	case c == NewCause(CauseRun, RunEnded):
		return "an ended run"
	case c.Kind() == CauseRun: // also of an inner run
		return "the budget of a run"
	case title != "":
		return fmt.Sprintf(title, c.Name())
	}
	return "other causes"
}

// Text returns a sentence for people.
func (c Cause) Text() string {
	switch text := causeTexts[c.Kind()].text; {
	case c == NewCause(CauseStop, StopAll):
		return "An operator stopped all spending."
	case c == NewCause(CauseRun, RunEnded):
		return "The run of the call had ended."
	case text != "":
		return fmt.Sprintf(text, c.Name())
	}
	return "Other causes, which are counted together."
}
