package pricing

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// fact is one number of an entry with a readable name: the common form for hashing, diffing and
// verifying.
type fact struct{ name, value string }

// facts lists what an entry charges, sorted by name.
func facts(e Entry) []fact {
	var list []fact
	for _, r := range e.Prices {
		prefix := r.conditions()
		for _, f := range r.Rates.fields() {
			if f.rate.Given {
				list = append(list, fact{prefix + f.name, formatDecimal(int64(f.rate.Pico), f.digits)})
			}
		}
		for _, i := range r.Images {
			list = append(list, fact{prefix + i.name(), i.value()})
		}
	}
	for _, m := range e.Multipliers {
		list = append(list, fact{"times " + strings.TrimSpace(m.conditions()), m.Times.String()})
	}
	slices.SortStableFunc(list, func(a, b fact) int { return strings.Compare(a.name, b.name) })
	return list
}

type rateField struct {
	name   string
	rate   *Rate
	digits int
}

// fields lists the rates with their YAML names.
func (r *Rates) fields() []rateField {
	return []rateField{
		{"input", &r.Input, tokenDigits},
		{"cached_input", &r.CachedInput, tokenDigits},
		{"cache_write", &r.CacheWrite, tokenDigits},
		{"cache_write_1h", &r.CacheWrite1h, tokenDigits},
		{"output", &r.Output, tokenDigits},
		{"image_in", &r.ImageIn, tokenDigits},
		{"image_out", &r.ImageOut, tokenDigits},
		{"audio_in", &r.AudioIn, tokenDigits},
		{"cached_audio_in", &r.CachedAudioIn, tokenDigits},
		{"audio_out", &r.AudioOut, tokenDigits},
		{"per_request", &r.PerRequest, feeDigits},
		{"per_tool_call", &r.PerToolCall, feeDigits},
		{"per_search_unit", &r.PerSearchUnit, feeDigits},
		{"per_minute", &r.PerMinute, feeDigits},
		{"characters", &r.Characters, tokenDigits},
	}
}

// field returns the rate with a YAML name; its rate is nil if there is none.
func (r *Rates) field(name string) rateField {
	fields := r.fields()
	i := slices.IndexFunc(fields, func(f rateField) bool { return f.name == name })
	if i < 0 {
		return rateField{}
	}
	return fields[i]
}

// over returns r with missing rates taken from below.
func (r Rates) over(below Rates) Rates {
	lower := below.fields()
	for i, f := range r.fields() {
		*f.rate = f.rate.or(*lower[i].rate)
	}
	return r
}

// conditions formats the row's conditions as a prefix: "from 2027-01-01 over 200000 ".
func (r Row) conditions() string {
	var b strings.Builder
	if !r.EffectiveFrom.IsZero() {
		b.WriteString("from " + formatTime(r.EffectiveFrom) + " ")
	}
	b.WriteString(conditions(r.ServiceTier, r.Region, r.UTCHours))
	if r.ContextOver > 0 {
		b.WriteString("over " + strconv.FormatInt(r.ContextOver, 10) + " ")
	}
	return b.String()
}

func (m Multiplier) conditions() string {
	s := conditions(m.ServiceTier, m.Region, m.UTCHours)
	if m.Batch {
		s += "batch "
	}
	return s
}

func conditions(tier, region string, hours []Hours) string {
	var b strings.Builder
	if tier != "" {
		b.WriteString("tier " + tier + " ")
	}
	if region != "" {
		b.WriteString("region " + region + " ")
	}
	for _, h := range hours {
		b.WriteString(h.String() + "Z ")
	}
	return b.String()
}

// formatTime formats a time, or only its date if it is midnight UTC.
func formatTime(t time.Time) string {
	t = t.UTC()
	if t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0 {
		return t.Format(time.DateOnly)
	}
	return t.Format(time.RFC3339)
}
