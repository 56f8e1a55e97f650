package calibration

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Sample is the input of one settled call whose whole prompt was text: with
// images, files, tools or cached tokens the ratio says nothing.
type Sample struct {
	Org       string // whose call it was
	Model     string // as it was asked for at the provider
	Version   string // as the answer names it; empty: as asked for
	Name      string // as the price catalogue has it, for metrics
	Class     Class
	Estimated int64 // tokens, before any factor
	Actual    int64 // tokens billed
}

const (
	separator = "\x1f" // between the parts of an entry's name
	maxName   = 200    // bytes of a part

	// perRound bounds the observations of one entry in a round: more would only
	// push each other out of the average. Later ones are dropped.
	perRound = 20
	// roundEntries bounds the entries of a kind in a round: 1,000 times 20
	// observations are about 100 ms of Redis.
	roundEntries = 1000
)

type inputKey struct {
	org, version string
	class        Class
}

type aliasKey struct{ org, model string }

type outputKey struct{ org, user, model string }

// group is the observations of one entry since the last round.
type group struct {
	text  strings.Builder
	count int
}

// pending is what has been observed since the last round.
type pending struct {
	mu      sync.Mutex
	aliases map[aliasKey]string // version
	inputs  map[inputKey]*group
	outputs map[outputKey]*group
	names   map[string]string // catalogue name: model; kept
}

// named reports whether a name can be part of an entry's.
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

// ObserveInput takes the bill of a call. It does no I/O.
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

// baseOf is the base an org's own calls show for the version that answered, which
// may not be the one expected.
func (c *Calibration) baseOf(s Sample) int64 {
	known := c.state.Load().inputs
	for _, name := range [2]string{s.Model, s.Version} {
		if m := known[name]; m != nil && m.orgs[s.Org].version == s.Version {
			return m.ownBase(s.Org, min(s.Class, classes-1), c.opts.Cap)
		}
	}
	return 0
}

// ObserveOutput takes the output tokens of a complete answer. It does no I/O.
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

// add appends an observation to its group and reports whether there was room.
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
	work        int // about, in microseconds of Redis
}

// Measured on a slow core: microseconds of an entry and of one observation.
const entryWork, observationWork = 20, 4

func (g *group) update(entry string) update {
	return update{entry, g.text.String(), entryWork + observationWork*g.count}
}

// take empties pending into the updates of both tables.
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

// Names of entries in Redis: kind and parts. Entries of input without an org are
// those of versions that kept none: they count as those of one more org.
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
