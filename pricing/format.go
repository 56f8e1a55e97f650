package pricing

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteEntries writes entries in the format that [ParseEntries] reads, for the configuration or for
// another prices.yaml. Multipliers from a shared list are written out.
func WriteEntries(w io.Writer, entries []Entry) error {
	var b strings.Builder
	for _, e := range entries {
		e.write(&b)
	}
	if len(entries) == 0 {
		b.WriteString("[]\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (e Entry) write(b *strings.Builder) {
	fmt.Fprintf(b, "- model: %s\n", text(e.Model))
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, "  %s: %s\n", key, value)
		}
	}
	if e.Provider != "" {
		line("provider", text(e.Provider))
	}
	line("names", flow(e.Names, text))
	line("prefixes", flow(e.Prefixes, text))
	line("context", positive(e.Context))
	line("max_output", positive(e.MaxOutput))
	if !e.AsOf.IsZero() {
		line("as_of", formatTime(e.AsOf))
	}
	if e.Note != "" {
		line("note", strconv.Quote(e.Note))
	}
	line("use", flow(e.Use, text))
	if len(e.Multipliers) > 0 {
		b.WriteString("  multipliers:\n")
	}
	for _, m := range e.Multipliers {
		m.write(b)
	}
	b.WriteString("  prices:\n")
	for _, r := range e.Prices {
		r.write(b)
	}
}

func (m Multiplier) write(b *strings.Builder) {
	fields := writeConditions(m.ServiceTier, m.Region, m.UTCHours)
	if m.Batch {
		fields = append(fields, "batch: true")
	}
	fields = append(fields, "times: "+m.Times.String())
	fmt.Fprintf(b, "    - {%s}\n", strings.Join(fields, ", "))
}

func (r Row) write(b *strings.Builder) {
	var fields []string
	if !r.EffectiveFrom.IsZero() {
		fields = append(fields, "effective_from: "+text(formatTime(r.EffectiveFrom)))
	}
	fields = append(fields, writeConditions(r.ServiceTier, r.Region, r.UTCHours)...)
	if r.ContextOver > 0 {
		fields = append(fields, "context_over: "+positive(r.ContextOver))
	}
	for _, f := range r.Rates.fields() {
		if f.rate.Given {
			fields = append(fields, f.name+": "+formatDecimal(int64(f.rate.Pico), f.digits))
		}
	}
	if len(r.Images) > 0 {
		fields = append(fields, "images: "+flow(r.Images, ImagePrice.yaml))
	}
	fmt.Fprintf(b, "    - {%s}\n", strings.Join(fields, ", "))
}

func writeConditions(tier, region string, hours []Hours) []string {
	var fields []string
	if tier != "" {
		fields = append(fields, "service_tier: "+text(tier))
	}
	if region != "" {
		fields = append(fields, "region: "+text(region))
	}
	if len(hours) > 0 {
		fields = append(fields, "utc_hours: "+flow(hours, func(h Hours) string { return strconv.Quote(h.String()) }))
	}
	return fields
}

func flow[T any](list []T, form func(T) string) string {
	if len(list) == 0 {
		return ""
	}
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = form(x)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// text quotes a string unless it is clearly a name.
func text(s string) string {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || !(r >= '0' && r <= '9') && !strings.ContainsRune("-_./", r)) {
			return strconv.Quote(s)
		}
	}
	switch strings.ToLower(s) {
	case "", "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	return s
}
