package finance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

// FocusOptions describe an export in the format of FOCUS.
type FocusOptions struct {
	Org, OrgName string
	Month        Month
	// By splits the rows further; see ParseBy.
	By By
	// BillingAccount is the BillingAccountId of all rows; empty: the id of the provider.
	BillingAccount string
	// Vendor returns the name of a provider's company; nil: its id.
	Vendor func(provider string) string
	Now    time.Time
}

// By is what rows are split by in addition to day, provider, model and token class.
type By struct {
	User, Key, Endpoint bool
	Labels              []string
}

// ParseBy parses a list such as "user,label:project". The dimensions are user, key, endpoint and
// label:NAME. An empty list is valid.
func ParseBy(list string) (By, error) {
	var by By
	if list == "" {
		return by, nil
	}
	for d := range strings.SplitSeq(list, ",") {
		name, label := strings.CutPrefix(d, ledger.LabelPrefix)
		switch {
		case d == "user":
			by.User = true
		case d == "key":
			by.Key = true
		case d == "endpoint":
			by.Endpoint = true
		case label && ledger.ValidLabelName(name):
			by.Labels = append(by.Labels, name)
		default:
			return by, fmt.Errorf("%.40q: expected user, key, endpoint and label:NAME, separated by commas", d)
		}
	}
	return by, nil
}

// of reduces a line to the dimensions of By.
func (by By) of(line Line) Line {
	if !by.User {
		line.User = ""
	}
	if !by.Key {
		line.Key = ""
	}
	if !by.Endpoint {
		line.Endpoint = ""
	}
	values := map[string]string{}
	for _, name := range by.Labels {
		values[name] = line.Labels.Get(name)
	}
	line.Labels, _ = ledger.NewLabels(values) // the values come from labels
	if len(by.Labels) == 0 && !line.Earlier && !line.Cached {
		line.Undetailed = false
	}
	return line
}

// Focus is an export that was read.
type Focus struct {
	Books
	o    FocusOptions
	rows []focusRow
}

// Rows returns the number of rows.
func (f *Focus) Rows() int { return len(f.rows) }

// focusRow is one row: a line and one of its token classes.
type focusRow struct {
	Line
	class  string
	tokens int64
	calls  int64
	cost   pricing.Nano
	o      *FocusOptions
}

// ReadFocus reads the rows of a month. Their BilledCost adds up to the ledger exactly.
func ReadFocus(ctx context.Context, l *ledger.Ledger, o FocusOptions) (*Focus, error) {
	f := &Focus{Books: Books{Org: o.Org, Month: o.Month, At: o.Now, labels: len(o.By.Labels) > 0}, o: o}
	lines := map[Line]*ledger.Sums{}
	err := read(ctx, l, &f.Books, func(line Line, s ledger.Sums) { addTo(lines, o.By.of(line), s) })
	if err != nil {
		return nil, err
	}
	for _, line := range slices.SortedFunc(maps.Keys(lines), compareLines) {
		s := lines[line]
		for _, part := range s.ByClass() {
			f.rows = append(f.rows, focusRow{
				Line: line, class: part.Class, tokens: part.Input + part.Output, calls: s.Calls, cost: part.Cost, o: &f.o,
			})
		}
	}
	return f, nil
}

func compareLines(a, b Line) int {
	return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model),
		cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Endpoint, b.Endpoint),
		cmp.Compare(a.Labels, b.Labels), cmp.Compare(a.details(), b.details()))
}

// details orders lines that differ in nothing else.
func (l Line) details() (n int) {
	for i, is := range [...]bool{l.Undetailed, l.Cached, l.Earlier} {
		if is {
			n |= 1 << i
		}
	}
	return n
}

// divided returns n*times/by, rounded to the nearest integer, halves away from zero.
func divided(n, times, by int64) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(2*times))
	if n < 0 {
		product.Sub(product, big.NewInt(by))
	} else {
		product.Add(product, big.NewInt(by))
	}
	return product.Quo(product, big.NewInt(2*by)).Int64()
}

// million is the number of tokens of a pricing unit.
const million = 1_000_000

var meters = map[string]string{
	"input": "Input Tokens", "cached_input": "Cached Input Tokens", "cache_write": "Cache Write Tokens",
	"output": "Output Tokens", "fees": "Fees", "unmetered": "Unmetered Usage",
}

// meter returns what is metered; empty for corrections.
func (r *focusRow) meter() string {
	if r.Cached && r.class == "unmetered" {
		return "Cached Answers"
	}
	return meters[r.class]
}

// usage reports whether the row is for something that was used. Corrections and reversals are not:
// their cost has no quantity.
func (r *focusRow) usage() bool { return r.class != "adjusted" && r.cost >= 0 && !r.Earlier }

func (r *focusRow) counted() bool { return r.tokens > 0 }

func (r *focusRow) vendor() string {
	switch {
	case r.Provider == "":
		return "llmguard"
	case r.o.Vendor == nil:
		return r.Provider
	}
	return r.o.Vendor(r.Provider)
}

func (r *focusRow) account() string { return cmp.Or(r.o.BillingAccount, r.Provider, "llmguard") }

func (r *focusRow) sku() string { return cmp.Or(r.Provider, "llmguard") + "/" + r.Model }

// pricingQuantity returns the quantity in units of 1e-9: millions of tokens, or requests.
func (r *focusRow) pricingQuantity() int64 {
	if r.counted() {
		return r.tokens * (1e9 / million)
	}
	return max(r.calls, 1) * 1e9
}

func (r *focusRow) unitPrice() int64 {
	if r.counted() {
		return divided(int64(r.cost), million, r.tokens)
	}
	return divided(int64(r.cost), 1, max(r.calls, 1))
}

func (r *focusRow) describe() string {
	what := r.meter()
	switch {
	case r.class == "adjusted":
		what = "Manual correction"
	case r.Earlier && r.cost < 0:
		what = "Reversal of an estimated charge"
	case !r.usage() && r.class == "unmetered":
		what = "Reversal of estimated charges"
	case r.Cached:
		what = "Answers from the response cache"
	case r.class == "unmetered":
		what = "Usage estimated without the provider's count"
	case r.class == "fees":
		what = "Fees per request, tool call, image or minute"
	}
	if r.Model != "" {
		what += " of " + r.Model
	}
	if r.Earlier {
		what += ", for an earlier month"
	}
	return what
}

// tags returns the tags as a JSON object, or "". Names of ours have a prefix, as FOCUS requires.
func (r *focusRow) tags() string {
	tags := maps.Collect(r.Labels.All())
	for name, value := range map[string]string{
		"llmguard:user": r.User, "llmguard:key": r.Key, "llmguard:endpoint": r.Endpoint,
	} {
		if value != "" {
			tags[name] = value
		}
	}
	if len(tags) == 0 {
		return ""
	}
	text, _ := json.Marshal(tags) // strings cannot fail
	return string(text)
}

// WriteCSV writes the export as CSV with a header (RFC 4180, with line feeds). Nulls are empty
// cells.
func (f *Focus) WriteCSV(to io.Writer) error {
	columns := focusColumns()
	w := escape.NewCSV(to)
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.name
	}
	_ = w.Write(cells) // Flush reports the error
	for k := range f.rows {
		for i, c := range columns {
			cells[i] = c.cell(&f.rows[k])
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
