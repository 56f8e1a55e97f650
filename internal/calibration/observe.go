package calibration

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Sample is the input of one settled call whose whole prompt was text. With images, files,
// tools or cached tokens the ratio is meaningless.
type Sample struct {
	Org       string // whose call it was
	Model     string // as requested from the provider
	Version   string // as named in the response; empty: as requested
	Name      string // as in the price catalogue, for metrics
	Class     Class
	Estimated int64 // tokens, before any factor
	Actual    int64 // tokens billed
}

const (
	separator = "\x1f" // separates the parts of an entry's name
	maxName   = 200    // bytes of a part

	// perRound limits the observations of one entry in a round, because more would only
	// displace each other in the average. Later ones are dropped.
	perRound = 20
	// roundEntries limits the entries of a kind in a round: 1,000 times 20 observations take
	// Redis about 100 ms.
	roundEntries = 1000
)

type inputKey struct {
	org, version string
	class        Class
}

type aliasKey struct{ org, model string }

type outputKey struct{ org, user, model string }

// group holds the observations of one entry since the last round.
type group struct {
	text  strings.Builder
	count int
}

// pending holds the observations since the last round.
type pending struct {
	mu      sync.Mutex
	aliases map[aliasKey]string // version
	inputs  map[inputKey]*group
	outputs map[outputKey]*group
	names   map[string]string // by catalogue name: model; kept
}

// named reports whether a name can be part of an entry's name.
func named(s string) bool {
	if len(s) > maxName || !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' {
			return false
		}
	}
	return true
}

// ObserveInput observes the billed input of a call. It does no I/O.
func (c *Calibration) ObserveInput(s Sample) {
	if c == nil || s.Model == "" || !named(s.Model) || !named(s.Org) {
		return
	}
	if s.Version == "" || !named(s.Version) {
		s.Version = s.Model
	}
	var buf [96]byte
	text, ratio, ok := observation(buf[:0], s.Estimated, s.Actual, c.baseOf(s))
	if !ok {
		c.metrics.observed("input", "outlier")
		return
	}
	p := &c.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Name != "" && named(s.Name) {
		set(&p.names, s.Name, s.Model)
	}
	set(&p.aliases, aliasKey{s.Org, s.Model}, s.Version)
	c.metrics.observed("input", outcome(ratio, add(&p.inputs, inputKey{s.Org, s.Version, s.Class}, text)))
}

// baseOf returns the base seen in an org's own calls for the version that answered, which may
// not be the expected one.
func (c *Calibration) baseOf(s Sample) int64 {
	known := c.state.Load().inputs
	for _, name := range [2]string{s.Model, s.Version} {
		if m := known[name]; m != nil && m.orgs[s.Org].version == s.Version {
			return m.ownBase(s.Org, min(s.Class, classes-1), c.opts.Cap)
		}
	}
	return 0
}

// ObserveOutput observes the output tokens of a complete response. It does no I/O.
func (c *Calibration) ObserveOutput(org, user, model string, tokens int64) {
	const most = 1 << 30 // as for usage everywhere
	if c == nil || tokens < 0 || tokens > most || model == "" || !named(org) || !named(user) || !named(model) {
		return
	}
	var buf [64]byte
	text := appendOutput(buf[:0], tokens)
	p := &c.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := add(&p.outputs, outputKey{"", "", model}, text)
	if org != "" {
		kept = add(&p.outputs, outputKey{org, "", model}, text)
		if user != "" {
			kept = add(&p.outputs, outputKey{org, user, model}, text)
		}
	}
	c.metrics.observed("output", outcome(true, kept))
}

func outcome(ratio, kept bool) string {
	switch {
	case !kept:
		return "dropped"
	case !ratio:
		return "base_only"
	default:
		return "taken"
	}
}

// add appends an observation to its group, and reports whether it was within the bounds.
func add[K comparable](groups *map[K]*group, key K, text []byte) bool {
	g := (*groups)[key]
	if g == nil {
		if len(*groups) >= roundEntries {
			return false
		}
		g = &group{}
		set(groups, key, g)
	}
	if g.count == perRound {
		return false
	}
	if g.count > 0 {
		g.text.WriteByte(';')
	}
	g.text.Write(text)
	g.count++
	return true
}

func set[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	if _, known := (*m)[key]; known || len(*m) < roundEntries {
		(*m)[key] = value
	}
}

// update is a change to one entry: "=<alias>", or observations.
type update struct {
	entry, text string
	work        int // estimated, in microseconds of Redis
}

// Measured on a slow core, in microseconds per entry and per observation.
const entryWork, observationWork = 20, 4

func (g *group) update(entry string) update {
	return update{entry, g.text.String(), entryWork + observationWork*g.count}
}

// take turns pending observations into updates of both tables, and resets them.
func (p *pending) take() (inputs, outputs []update) {
	p.mu.Lock()
	aliases := p.aliases
	in := p.inputs
	out := p.outputs
	p.aliases = nil
	p.inputs = nil
	p.outputs = nil
	p.mu.Unlock()
	for k, g := range in {
		inputs = append(inputs, g.update(inputEntry(k)))
	}
	for k, version := range aliases {
		inputs = append(inputs, update{aliasEntry(k), "=" + version, entryWork})
	}
	for k, g := range out {
		outputs = append(outputs, g.update(outputEntry(k)))
	}
	return inputs, outputs
}

// Names of entries in Redis: kind and parts. Input entries without an org are from versions
// that did not distinguish orgs; they count as those of one more org.
func inputEntry(k inputKey) string {
	return "v" + separator + k.version + separator + k.class.String() + orgPart(k.org)
}

func aliasEntry(k aliasKey) string { return "a" + separator + k.model + orgPart(k.org) }

func orgPart(org string) string {
	if org == "" {
		return ""
	}
	return separator + org
}

func outputEntry(k outputKey) string {
	return "o" + separator + k.org + separator + k.user + separator + k.model
}
