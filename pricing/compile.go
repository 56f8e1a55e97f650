package pricing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// rates is a Rates list with every class resolved.
type rates struct {
	input, cached, write, write1h, output  uint64
	imageIn, imageOut, audioIn, audioOut   uint64
	cachedAudio                            uint64
	perRequest, perToolCall, perSearchUnit uint64
	perMinute, perCharacter, perImage      uint64
}

func (r Rates) resolve() rates {
	pick := func(r Rate) uint64 { return uint64(r.Pico) }
	write := r.CacheWrite.or(r.Input)
	return rates{
		input: pick(r.Input), cached: pick(r.CachedInput.or(r.Input)),
		write: pick(write), write1h: pick(r.CacheWrite1h.or(write)),
		output:  pick(r.Output),
		imageIn: pick(r.ImageIn.or(r.Input)), audioIn: pick(r.AudioIn.or(r.Input)),
		cachedAudio: pick(r.CachedAudioIn.or(r.AudioIn).or(r.Input)),
		imageOut:    pick(r.ImageOut.or(r.Output)), audioOut: pick(r.AudioOut.or(r.Output)),
		perRequest: pick(r.PerRequest), perToolCall: pick(r.PerToolCall), perSearchUnit: pick(r.PerSearchUnit),
		perMinute: pick(r.PerMinute), perCharacter: pick(r.Characters),
	}
}

// dearest returns the list for holds: every input token at the highest price of plain, cached and
// written (the provider decides which it is), and every part at no less than its whole.
func (r rates) dearest() rates {
	r.input = max(r.input, r.cached, r.write)
	r.write1h = max(r.write1h, r.input)
	r.imageIn, r.audioIn = max(r.imageIn, r.input), max(r.audioIn, r.cachedAudio, r.input)
	r.imageOut, r.audioOut = max(r.imageOut, r.output), max(r.audioOut, r.output)
	return r
}

// entry is a validated Entry in the form from which charges are computed. It is immutable and
// shared by every Price created from it.
type entry struct {
	src     Entry
	periods []period // in order of time; the first may begin at minTime
	tiers   []string // "" first, then every named service tier
	cuts    []int    // minutes of the day at which a price may change
	mults   []multiplier
}

type period struct {
	from  int64 // Unix seconds
	rows  []row
	edges []int64 // context_over values, ascending, 0 first
}

type row struct {
	tier, region string
	hours        []Hours
	over         int64
	pay, hold    rates
	images       []ImagePrice
	spoken       bool // a character has a price
	timed        bool // a minute has a price
	united       bool // a search unit has a price
}

type multiplier struct {
	tier, region string
	hours        []Hours
	batch        bool
	times        uint64
}

const minTime = math.MinInt64

// compile validates and converts e. shared resolves e.Use.
func compile(e Entry, shared map[string][]Multiplier) (*entry, error) {
	c := &entry{src: e, tiers: []string{""}}
	if err := checkNames(e); err != nil {
		return nil, err
	}
	for i, r := range e.Prices {
		if err := c.addRow(r); err != nil {
			return nil, fmt.Errorf("prices[%d]: %w", i, err)
		}
	}
	if len(c.periods) == 0 {
		return nil, errors.New("no prices")
	}
	slices.SortFunc(c.periods, func(a, b period) int { return cmp.Compare(a.from, b.from) })
	for i := range c.periods {
		if err := c.periods[i].check(); err != nil {
			return nil, err
		}
	}
	if err := c.addMultipliers(shared); err != nil {
		return nil, err
	}
	slices.Sort(c.cuts)
	c.cuts = slices.Compact(c.cuts)
	return c, nil
}

func checkNames(e Entry) error {
	if e.Context < 0 || e.MaxOutput < 0 {
		return errors.New("context and max_output must not be negative")
	}
	for _, name := range append([]string{e.Model}, e.Names...) {
		if name == "" || len(name) > 200 || strings.ContainsFunc(name, isSpaceOrControl) {
			return fmt.Errorf("model name %.40q: want 1 to 200 characters without spaces", name)
		}
	}
	for _, p := range e.Prefixes {
		if p == "" || len(p) > 200 {
			return fmt.Errorf("prefix %.40q: want 1 to 200 characters", p)
		}
	}
	return nil
}

func isSpaceOrControl(r rune) bool { return r <= ' ' || r == 0x7f }

func (c *entry) addRow(r Row) error {
	if !r.Rates.Input.Given || !r.Rates.Output.Given {
		return errors.New("input and output prices must both be given, 0 included")
	}
	if r.ContextOver < 0 {
		return errors.New("context_over must not be negative")
	}
	if err := r.Rates.check(); err != nil {
		return err
	}
	if err := checkImages(r.Images); err != nil {
		return err
	}
	tier, region, err := c.conditions(r.ServiceTier, r.Region, r.UTCHours)
	if err != nil {
		return err
	}
	from := r.start()
	pay := r.Rates.resolve()
	compiled := row{
		tier: tier, region: region, hours: r.UTCHours, over: r.ContextOver, pay: pay, hold: pay.dearest(), images: r.Images,
		spoken: r.Rates.Characters.Given, timed: r.Rates.PerMinute.Given,
		united: r.Rates.PerSearchUnit.Given,
	}
	i := slices.IndexFunc(c.periods, func(p period) bool { return p.from == from })
	if i < 0 {
		i, c.periods = len(c.periods), append(c.periods, period{from: from})
	}
	c.periods[i].rows = append(c.periods[i].rows, compiled)
	return nil
}

// start returns when the row's period begins, in Unix seconds.
func (r Row) start() int64 {
	if r.EffectiveFrom.IsZero() {
		return minTime
	}
	return r.EffectiveFrom.Unix()
}

func (r Rates) check() error {
	for _, f := range r.fields() {
		pico := f.rate.Pico
		switch {
		case f.digits == tokenDigits && (pico < 0 || pico > maxTokenRate):
			return errors.New("a token price is outside [0, 1,000,000 per token]")
		case pico < 0 || pico > maxFee:
			return errors.New("a fee is outside [0, 1000]")
		}
	}
	return nil
}

// conditions normalizes and records the conditions of a row or multiplier.
func (c *entry) conditions(tier, region string, hours []Hours) (string, string, error) {
	tier, region = canonicalTier(tier), canonicalRegion(region)
	if tier == tierAuto {
		return "", "", errors.New("service_tier auto is not a tier; leave it out")
	}
	if !slices.Contains(c.tiers, tier) {
		c.tiers = append(c.tiers, tier)
	}
	for _, h := range hours {
		if h.From < 0 || h.From >= dayMinutes || h.To < 0 || h.To > dayMinutes || h.From == h.To {
			return "", "", fmt.Errorf("utc_hours %v: not a part of a day", h)
		}
		c.cuts = append(c.cuts, h.From, h.To%dayMinutes)
	}
	return tier, region, nil
}

func (c *entry) addMultipliers(shared map[string][]Multiplier) error {
	all := slices.Clone(c.src.Multipliers)
	for _, name := range c.src.Use {
		list, ok := shared[name]
		if !ok {
			return fmt.Errorf("use: no shared multipliers are called %.40q", name)
		}
		all = append(all, list...)
	}
	for i, m := range all {
		if m.Times <= 0 || m.Times > maxFactor {
			return fmt.Errorf("multipliers[%d]: times must be above 0 and at most 100", i)
		}
		tier, region, err := c.conditions(m.ServiceTier, m.Region, m.UTCHours)
		if err != nil {
			return fmt.Errorf("multipliers[%d]: %w", i, err)
		}
		if tier == "" && region == "" && len(m.UTCHours) == 0 && !m.Batch {
			return fmt.Errorf("multipliers[%d]: needs a service_tier, region, utc_hours or batch", i)
		}
		x := multiplier{tier: tier, region: region, hours: m.UTCHours, batch: m.Batch, times: uint64(m.Times)}
		if err := c.checkMultiplier(x); err != nil {
			return fmt.Errorf("multipliers[%d]: %w", i, err)
		}
		c.mults = append(c.mults, x)
	}
	c.src.Multipliers, c.src.Use = all, nil
	return nil
}

// checkMultiplier refuses multipliers that would be applied twice.
func (c *entry) checkMultiplier(m multiplier) error {
	for _, x := range c.mults {
		if x.tier == m.tier && x.region == m.region && x.batch == m.batch && slices.Equal(x.hours, m.hours) {
			return errors.New("the same conditions are multiplied twice")
		}
	}
	for _, p := range c.periods {
		for _, r := range p.rows {
			if m.tier != "" && r.tier == m.tier || m.region != "" && r.region == m.region {
				return errors.New("a price row already names this service tier or region")
			}
		}
	}
	return nil
}

// check ensures that a row is found for every call in the period: an unconditional row exists, and
// for every tier, region or hours in a row there is a price at the same context edges as in the
// unconditional rows.
func (p *period) check() error {
	for _, r := range p.rows {
		if r.tier == "" && r.region == "" && len(r.hours) == 0 {
			p.edges = append(p.edges, r.over)
		}
	}
	slices.Sort(p.edges)
	if len(p.edges) == 0 || p.edges[0] != 0 {
		return errors.New("every period needs a price without conditions")
	}
	for i, r := range p.rows {
		same := 0
		for j, x := range p.rows {
			if x.tier != r.tier || x.region != r.region {
				continue
			}
			if !slices.Equal(x.hours, r.hours) {
				if len(x.hours) > 0 && len(r.hours) > 0 && overlap(x.hours, r.hours) {
					return errors.New("two prices have overlapping utc_hours")
				}
				continue
			}
			if i != j && x.over == r.over {
				return errors.New("two prices have the same conditions")
			}
			if slices.Contains(p.edges, x.over) {
				same++
			}
		}
		if same != len(p.edges) || !slices.Contains(p.edges, r.over) {
			return fmt.Errorf("prices for service_tier %q region %q need the same context_over edges as the default price",
				r.tier, r.region)
		}
	}
	return nil
}

func overlap(a, b []Hours) bool {
	for minute := range dayMinutes {
		if inHours(a, minute) && inHours(b, minute) {
			return true
		}
	}
	return false
}
