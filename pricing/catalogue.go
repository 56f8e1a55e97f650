package pricing

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Catalogue maps models to prices. It is immutable and safe for concurrent use; [Catalogue.With]
// returns a new one. The zero value knows no model.
type Catalogue struct {
	unit    string
	version string
	shared  map[string][]Multiplier
	// layers hold entries in order of precedence: an operator's entry overrides an embedded one
	// even if it matches less exactly.
	layers []layer
	// checked is when all prices were compared with a list; zero if they were not since they were
	// written.
	checked time.Time
	known   known
}

// layer indexes the entries that were added together.
type layer struct {
	entries  []*entry
	exact    map[string][]*entry
	prefixes []prefix // longest first
}

type prefix struct {
	text  string
	entry *entry
}

// UnknownModelError means that a model has no price, so a call to it must not be made: an unknown
// price is never zero.
type UnknownModelError struct {
	Provider, Model string
	// Providers lists the providers that price this model name differently, if no price was chosen
	// for that reason.
	Providers []string
	// NotBefore is when the model's first price begins, if that is after the call.
	NotBefore time.Time
}

// Error names the model and explains how an operator adds a price for it.
func (e *UnknownModelError) Error() string {
	var why string
	switch {
	case len(e.Providers) > 0:
		why = fmt.Sprintf("the model is priced differently by %s; name one of them as the provider, or",
			strings.Join(e.Providers, ", "))
	case !e.NotBefore.IsZero():
		why = fmt.Sprintf("its first known price begins on %s;", e.NotBefore.UTC().Format(time.DateOnly))
	default:
		why = cmp.Or(unpricedReason(e.Model), "the operator can")
	}
	provider := ""
	if e.Provider != "" {
		provider = fmt.Sprintf(" at provider %.60q", e.Provider)
	}
	return fmt.Sprintf("no price for model %.100q%s: %s add it under prices in the configuration, in USD per 1M tokens, "+
		`for example: prices: [{model: NAME, provider: PROVIDER, prices: [{input: "1.25", output: "10"}]}]`, e.Model,
		provider, why)
}

// embeddedJSON has what prices.yaml says, as parsed: every command that reads a configuration needs it, and YAML takes
// ten times as long. TestEmbeddedIsTheList compares them.
//
//go:embed prices.json
var embeddedJSON []byte

//go:generate go test -run ^TestEmbeddedIsTheList$ -update .

// catalogueFile is the content of a whole catalogue file.
type catalogueFile struct {
	Unit   string
	Shared map[string][]Multiplier
	Models []Entry
}

var embedded = sync.OnceValues(func() (*Catalogue, error) {
	var f catalogueFile
	if err := json.Unmarshal(embeddedJSON, &f); err != nil {
		return nil, fmt.Errorf("pricing: the embedded catalogue: %w", err)
	}
	return f.catalogue()
})

func (f catalogueFile) catalogue() (*Catalogue, error) {
	return (&Catalogue{unit: f.Unit, shared: f.Shared}).With(f.Models)
}

// Embedded returns the catalogue embedded in this module. It is parsed in the first call.
func Embedded() (*Catalogue, error) { return embedded() }

// New returns a catalogue of the entries. unit "" means usd.
func New(unit string, entries []Entry) (*Catalogue, error) {
	c := &Catalogue{unit: cmp.Or(unit, "usd")}
	return c.With(entries)
}

// With returns a catalogue in which the given entries override those of c wherever they match, by
// exact name or by prefix.
func (c *Catalogue) With(overrides []Entry) (*Catalogue, error) {
	if len(overrides) == 0 && len(c.layers) > 0 {
		return c, nil
	}
	l, err := newLayer(overrides, c.shared)
	if err != nil {
		return nil, err
	}
	n := &Catalogue{unit: c.unit, shared: c.shared, layers: append([]layer{l}, c.layers...), checked: c.checked}
	n.version = n.hash()
	return n, nil
}

// WithList is With for a list in the format of [ParseList]. A date in the list means that all
// prices, including those of c, were checked on that day.
func (c *Catalogue) WithList(text []byte) (*Catalogue, error) {
	list, checked, err := ParseList(text)
	if err != nil {
		return nil, err
	}
	n, err := c.With(list)
	if err != nil {
		return nil, err
	}
	return &Catalogue{unit: n.unit, version: n.version, shared: n.shared, layers: n.layers, checked: checked}, nil
}

func newLayer(list []Entry, shared map[string][]Multiplier) (layer, error) {
	l := layer{exact: make(map[string][]*entry, 2*len(list))}
	for _, e := range list {
		c, err := compile(e, shared)
		if err == nil {
			err = l.add(c)
		}
		if err != nil {
			return layer{}, fmt.Errorf("pricing: model %.100q of provider %.60q: %w", e.Model, e.Provider, err)
		}
	}
	slices.SortStableFunc(l.prefixes, func(a, b prefix) int { return len(b.text) - len(a.text) })
	return l, nil
}

// add indexes an entry. If a name or prefix is already taken, it returns an error and leaves the
// layer unchanged.
func (l *layer) add(e *entry) error {
	names := append([]string{e.src.Model}, e.src.Names...)
	sameProvider := func(other *entry) bool { return other.src.Provider == e.src.Provider }
	for i, name := range names {
		if slices.ContainsFunc(l.exact[name], sameProvider) || slices.Contains(names[:i], name) {
			return fmt.Errorf("name %.100q is listed twice", name)
		}
	}
	for i, text := range e.src.Prefixes {
		taken := func(p prefix) bool { return p.text == text && sameProvider(p.entry) }
		if slices.ContainsFunc(l.prefixes, taken) || slices.Contains(e.src.Prefixes[:i], text) {
			return fmt.Errorf("prefix %.100q is listed twice", text)
		}
	}
	l.entries = append(l.entries, e)
	for _, name := range names {
		l.exact[name] = append(l.exact[name], e)
	}
	for _, text := range e.src.Prefixes {
		l.prefixes = append(l.prefixes, prefix{text, e})
	}
	return nil
}

// Lookup returns the price of a model for a call admitted at a time; a zero at means now. An exact
// name has precedence over the longest prefix. A provider that the catalogue does not list,
// including "" (an own alias of a known vendor, a gateway, Azure), gets the model's price from any
// provider, if only one lists it or all agree. The only error is *[UnknownModelError].
func (c *Catalogue) Lookup(provider, model string, at time.Time) (*Price, error) {
	if at.IsZero() {
		at = time.Now()
	}
	e := c.known.get(provider, model)
	if e == nil {
		var rivals []string
		e, rivals = c.match(provider, model)
		if e == nil {
			return nil, &UnknownModelError{Provider: provider, Model: model, Providers: rivals}
		}
		c.known.put(provider, model, e)
	}
	return e.price(c.version, provider, model, at)
}

// known caches matches: the same few models are looked up again and again, and most match only
// after all prefixes were tried.
type known struct {
	mu      sync.RWMutex
	entries map[modelKey]*entry
}

// Callers choose the names of models, so the cache is bounded in number and length.
const (
	mostKnown = 1000
	longKnown = 128 // bytes
)

func (k *known) get(provider, model string) *entry {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.entries[modelKey{provider, model}]
}

func (k *known) put(provider, model string, e *entry) {
	if len(provider)+len(model) > longKnown {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entries == nil || len(k.entries) >= mostKnown {
		k.entries = map[modelKey]*entry{}
	}
	k.entries[modelKey{strings.Clone(provider), strings.Clone(model)}] = e
}

// Price returns the price of the entry alone, for example of what an org pays for unknown models.
// Its version is that of a catalogue with only this entry; Use must be empty.
func (e Entry) Price(at time.Time) (*Price, error) {
	c, err := New("", []Entry{e})
	if err != nil {
		return nil, err
	}
	return c.layers[0].entries[0].price(c.version, e.Provider, e.Model, at)
}

func (e *entry) price(version, provider, model string, at time.Time) (*Price, error) {
	if from := e.periods[0].from; from > at.Unix() {
		return nil, &UnknownModelError{Provider: provider, Model: model, NotBefore: time.Unix(from, 0).UTC()}
	}
	return &Price{
		Model: e.src.Model, Provider: e.src.Provider, Version: version,
		MaxOutput: e.src.MaxOutput, Context: e.src.Context, entry: e, at: at,
	}, nil
}

func (c *Catalogue) match(provider, model string) (found *entry, rivals []string) {
	for i := range c.layers {
		if list := c.layers[i].match(model, func(p string) bool { return p == "" || p == provider }); len(list) > 0 {
			return prefer(list, provider), nil
		}
	}
	if c.lists(provider) {
		return nil, nil
	}
	for i := range c.layers {
		list := c.layers[i].match(model, func(string) bool { return true })
		if len(list) > 0 && sameFacts(list) {
			return list[0], nil
		}
		for _, e := range list {
			rivals = append(rivals, e.src.Provider)
		}
		if rivals != nil {
			slices.Sort(rivals)
			return nil, rivals
		}
	}
	return nil, nil
}

// match returns the entries of the most exact match among wanted providers.
func (l *layer) match(model string, wanted func(provider string) bool) []*entry {
	var list []*entry
	for _, e := range l.exact[model] {
		if wanted(e.src.Provider) {
			list = append(list, e)
		}
	}
	length := 0
	for _, p := range l.prefixes {
		if len(list) > 0 && len(p.text) < length || length == 0 && len(list) > 0 {
			break
		}
		if strings.HasPrefix(model, p.text) && wanted(p.entry.src.Provider) {
			list, length = append(list, p.entry), len(p.text)
		}
	}
	return list
}

// lists reports whether the catalogue's own entries cover the provider. An operator's entries do
// not count: adding one alias for a gateway must not hide the models that were found without it.
func (c *Catalogue) lists(provider string) bool {
	if provider == "" || len(c.layers) == 0 {
		return false
	}
	base := c.layers[len(c.layers)-1]
	return slices.ContainsFunc(base.entries, func(e *entry) bool { return e.src.Provider == provider })
}

// prefer selects the entry that names the provider over one for all providers.
func prefer(list []*entry, provider string) *entry {
	i := slices.IndexFunc(list, func(e *entry) bool { return e.src.Provider == provider })
	return list[max(i, 0)]
}

func sameFacts(list []*entry) bool {
	first := facts(list[0].src)
	return !slices.ContainsFunc(list[1:], func(e *entry) bool { return !slices.Equal(facts(e.src), first) })
}

// Entries returns the entries in effect: operators' first, and of two for the same model and
// provider only the one that takes precedence. Multipliers are expanded.
func (c *Catalogue) Entries() []Entry {
	seen := make(map[modelKey]bool)
	var list []Entry
	for _, l := range c.layers {
		for _, e := range l.entries {
			k := modelKey{e.src.Provider, e.src.Model}
			if !seen[k] {
				seen[k] = true
				list = append(list, e.src)
			}
		}
	}
	return list
}

// ModelNames returns all names of the models in a list, of one provider unless it is "".
func ModelNames(list []Entry, provider string) (names []string) {
	for _, e := range list {
		if provider == "" || e.Provider == provider {
			names = append(append(names, e.Model), e.Names...)
		}
	}
	return names
}

// Version returns a short hash of every price and rule in the catalogue; it is recorded with each
// ledger entry.
func (c *Catalogue) Version() string { return c.version }

// Unit returns the unit of the prices, "usd" unless the catalogue uses another, such as "credits".
func (c *Catalogue) Unit() string { return c.unit }

// AsOf returns when the stalest entry in effect was last checked; zero if unknown.
func (c *Catalogue) AsOf() time.Time {
	var oldest time.Time
	for _, e := range c.Entries() {
		if !e.AsOf.IsZero() && (oldest.IsZero() || e.AsOf.Before(oldest)) {
			oldest = e.AsOf
		}
	}
	if !oldest.IsZero() && oldest.Before(c.checked) {
		return c.checked
	}
	return oldest
}

// Age returns how long ago [Catalogue.AsOf] was, never negative; 0 if unknown.
func (c *Catalogue) Age(now time.Time) time.Duration {
	asOf := c.AsOf()
	if asOf.IsZero() {
		return 0
	}
	return max(0, now.Sub(asOf))
}

func (c *Catalogue) hash() string {
	h := sha256.New()
	fmt.Fprintf(h, "unit %s\n", c.unit)
	for i, l := range c.layers {
		for _, e := range l.entries {
			fmt.Fprintf(h, "layer %d\n%q %q %q %q %d %d\n", i, e.src.Provider, e.src.Model, e.src.Names, e.src.Prefixes,
				e.src.Context, e.src.MaxOutput)
			for _, f := range facts(e.src) {
				fmt.Fprintln(h, f.name, f.value)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
