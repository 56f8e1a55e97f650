package pricing

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Horizon is how far past [Terms.At] a ceiling looks for more expensive hours and dates: a call
// held now may be priced by the provider when it ends.
const Horizon = time.Hour

// Terms are the conditions under which a call is priced.
type Terms struct {
	// ServiceTier is the tier that the request names (for a ceiling) or at which the answer was
	// served (for a charge). "" and "auto" mean ProjectTier. "default", "standard",
	// "standard_only", "on_demand" and "scale" are the default price. For a tier that the price
	// does not know, the most expensive known tier is used, except for flex, which never costs more
	// than the default.
	ServiceTier string
	// ProjectTier is the tier at which the provider account serves requests that name none: "" is
	// default. Set it if the provider's project is configured to use priority, so that holds cover
	// it.
	ProjectTier string
	// Batch is for calls sent through the provider's own batch API. It replaces the service tier.
	Batch bool
	// At is the time for which the call is priced. Zero means the time of [Catalogue.Lookup].
	At time.Time
	// Region is the provider's processing region or data residency, "" or
	// "global" for none.
	Region string
	// ImageSize and ImageQuality are those of the generated pictures, "" if not named.
	ImageSize, ImageQuality string
}

// Price is the price of a model, fixed when it was looked up: later changes of the catalogue do not
// affect it, but future dates and hours that it already knew do. It is immutable and safe for
// concurrent use.
type Price struct {
	// Model and Provider are the catalogue's names, a closed set suitable for metric labels;
	// Version is the catalogue's.
	Model, Provider, Version string
	// MaxOutput and Context are in tokens, 0 if unknown.
	MaxOutput, Context int64

	entry *entry
	at    time.Time
}

// Charge returns the cost of the usage at the tier, region and time in t, rounded up once to a
// nano-USD. The usage is clamped first (see [Usage.Clamp]). The only error is [ErrOverflow].
func (p *Price) Charge(u Usage, t Terms) (Nano, error) {
	u, _ = u.Clamp()
	c, err := p.charged(&u, t)
	return c.Total(), err
}

// charged returns what a clamped usage costs.
func (p *Price) charged(u *Usage, t Terms) (charge, error) {
	var buf [8]string
	c := call{u, t, p.entry.chargedTiers(buf[:0], t), p.instant(t).Unix()}
	return p.entry.dearest(&c, u.Input, false)
}

// Ceiling returns the maximum that a call can be charged if it uses no more than u (Input,
// CacheWrite1h, AudioIn, ImageIn, Output, AudioOut, ImageOut, and all units but tokens) and is
// charged at any time from t.At to [Horizon] later. It assumes no cache discount, that input is
// written to the cache if that costs more, and the most expensive context tier reachable with
// u.Input. It is never less than the cost at the default service tier, because an answer may be
// served at that tier whatever the request named. The only error is [ErrOverflow].
func (p *Price) Ceiling(u Usage, t Terms) (Nano, error) {
	u, _ = u.Clamp()
	u.CachedInput = 0
	u.CacheWrite, u.CachedAudio = 0, 0
	u.Reasoning = 0
	e := p.entry
	start := p.instant(t).Unix()
	end := start + int64(Horizon/time.Second)
	var buf [8]string
	tiers := e.chargedTiers(buf[:0], t)
	if !slices.Contains(tiers, "") {
		tiers = append(tiers, "")
	}
	most, err := e.ceilingAt(&call{&u, t, tiers, start})
	for _, next := range e.changes(start, end) {
		n, errNext := e.ceilingAt(&call{&u, t, tiers, next})
		most, err = max(most, n), cmp.Or(err, errNext)
	}
	if err != nil {
		return 0, err
	}
	return most, nil
}

func (p *Price) instant(t Terms) time.Time {
	if t.At.IsZero() {
		return p.at
	}
	return t.At
}

// ceilingAt returns the cost at the most expensive context tier that u.Input tokens or fewer reach.
func (e *entry) ceilingAt(c *call) (Nano, error) {
	first, err := e.dearest(c, c.usage.Input, true)
	most := first.Total()
	for _, edge := range e.periodAt(c.unix).edges {
		if edge >= c.usage.Input || err != nil {
			break
		}
		var lower charge
		lower, err = e.dearest(c, edge, true)
		most = max(most, lower.Total())
	}
	return most, err
}

// changes lists the times in (start, end] at which the price may change.
func (e *entry) changes(start, end int64) []int64 {
	var list []int64
	for _, p := range e.periods {
		if p.from > start && p.from <= end {
			list = append(list, p.from)
		}
	}
	const day = 24 * 60 * 60
	midnight := start - floorMod(start, day)
	for _, cut := range e.cuts {
		at := midnight + int64(cut)*60
		if at <= start {
			at += day
		}
		if at <= end {
			list = append(list, at)
		}
	}
	return list
}

func floorMod(a, b int64) int64 { return ((a % b) + b) % b }

// minuteOf returns the minute of the UTC day.
func minuteOf(unix int64) int { return int(floorMod(unix, 24*60*60) / 60) }

// periodAt returns the period in effect, or the first one before any begins.
func (e *entry) periodAt(unix int64) *period {
	i := len(e.periods) - 1
	for i > 0 && e.periods[i].from > unix {
		i--
	}
	return &e.periods[i]
}

// call is what is priced: its usage, and the applicable terms, service tiers and time.
type call struct {
	usage *Usage
	terms Terms
	tiers []string
	unix  int64
}

// charge is the cost of a call at a service tier, and the prices that apply there.
type charge struct {
	Split
	tier string
	row  *row
	list *rates
}

// dearest returns the cost at the most expensive of the tiers, priced as if the input had context
// tokens.
func (e *entry) dearest(c *call, context int64, hold bool) (charge, error) {
	var most charge
	region := canonicalRegion(c.terms.Region)
	minute := minuteOf(c.unix)
	p := e.periodAt(c.unix)
	for _, tier := range c.tiers {
		r := p.find(tier, region, minute, context)
		list := &r.pay
		if hold {
			list = &r.hold
		}
		list = r.priced(list, c.terms)
		parts, err := list.split(c.usage, e.factors(tier, region, minute, c.terms.Batch))
		if err != nil {
			return charge{}, err
		}
		if most.row == nil || parts.Total() > most.Total() {
			most = charge{parts, tier, r, list}
		}
	}
	return most, nil
}

// find returns the most specific row that applies: service tier before region before hours, and of
// those the highest context tier below context tokens.
func (p *period) find(tier, region string, minute int, context int64) *row {
	var best *row
	bestRank := int64(-1)
	for i := range p.rows {
		r := &p.rows[i]
		if r.over > 0 && context <= r.over || r.tier != "" && r.tier != tier ||
			!regionHolds(r.region, region) || !inHours(r.hours, minute) {
			continue
		}
		if rank := r.rank(); rank > bestRank || rank == bestRank && r.over > best.over {
			best, bestRank = r, rank
		}
	}
	return best
}

func (r *row) rank() int64 {
	var rank int64
	if r.tier != "" {
		rank += 8
	}
	switch r.region {
	case "":
	case regionAny:
		rank += 2
	default:
		rank += 4
	}
	if len(r.hours) > 0 {
		rank++
	}
	return rank
}

// factors multiplies all multipliers whose conditions hold.
func (e *entry) factors(tier, region string, minute int, batch bool) factors {
	f := factors{num: 1, den: 1, ok: true}
	for i := range e.mults {
		m := &e.mults[i]
		if m.holds(tier, region, minute, batch) {
			f = f.times(m.times)
		}
	}
	return f
}

func (m *multiplier) holds(tier, region string, minute int, batch bool) bool {
	return (m.tier == "" || m.tier == tier) && (!m.batch || batch) && regionHolds(m.region, region) &&
		inHours(m.hours, minute)
}

const (
	tierAuto  = "auto"
	tierFlex  = "flex"
	regionAny = "any"
)

// canonicalTier returns the tier in lower case, "" for the default tier.
func canonicalTier(name string) string {
	switch name = lower(name); name {
	case "default", "standard", "standard_only", "on_demand", "scale":
		return ""
	}
	return name
}

// canonicalRegion returns the region in lower case, "" for processing anywhere.
func canonicalRegion(name string) string {
	switch name = lower(name); name {
	case "global", "default", "not_available":
		return ""
	}
	return name
}

func lower(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' || c >= 0x80 {
			return strings.ToLower(s)
		}
	}
	return s
}

func regionHolds(want, have string) bool {
	return want == "" || want == have || want == regionAny && have != ""
}

// chargedTiers appends the tiers at which a call may be charged: one if it is known, all of them if
// the name is not known.
func (e *entry) chargedTiers(buf []string, t Terms) []string {
	name := canonicalTier(t.ServiceTier)
	if t.ServiceTier == "" || name == tierAuto {
		name = canonicalTier(t.ProjectTier)
	}
	switch {
	case t.Batch, name == "", name == tierAuto:
		return append(buf, "")
	case slices.Contains(e.tiers, name):
		return append(buf, name)
	case name == tierFlex:
		return append(buf, "")
	}
	return append(buf, e.tiers...)
}
