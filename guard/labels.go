package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
)

// Label is a dimension of calls that limits and the ledger can count by.
type Label struct {
	Name string
	// From are the places of its value; the first one that has a value counts. Without any, the
	// value is Default.
	From    []LabelSource
	Default string
	// Required refuses calls without a value.
	Required bool
	// IgnoreInvalid takes an invalid value for an absent one, instead of refusing the call.
	IgnoreInvalid bool
	// MaxValues is how many different values an org may have in a UTC day; the calls of further
	// values count under ledger.OtherLabel. At least 1.
	MaxValues int
	// Usage keeps the sums of days by value.
	Usage bool
}

// LabelSource is a place of a label's value: exactly one field is set.
type LabelSource struct {
	Header string // of the request
	Field  string // of the JSON body: a top-level text, or "metadata.NAME"
	Key    bool   // the value that the key, its user or its org has
}

// String is the source as the configuration writes it.
func (s LabelSource) String() string {
	switch {
	case s.Header != "":
		return "header " + s.Header
	case s.Field != "":
		return "body " + s.Field
	default:
		return "key"
	}
}

// ReadsHeader reports whether a label may have its value from a header of the request.
func ReadsHeader(labels []Label, name string) bool {
	return slices.ContainsFunc(labels, func(l Label) bool {
		return slices.ContainsFunc(l.From, func(s LabelSource) bool { return strings.EqualFold(s.Header, name) })
	})
}

// LabelPlaces are where the labels of a call may be; nil parts have none.
type LabelPlaces struct {
	Header http.Header
	// Field returns a field of the body as in LabelSource; "" if it is absent.
	Field func(name string) (string, error)
}

// LabelsIn returns the places of a request's labels.
func LabelsIn(h http.Header, r *wire.Request) LabelPlaces {
	return LabelPlaces{Header: h, Field: func(name string) (string, error) { return fieldOf(r, name) }}
}

// fieldOf reads a label's field from a request.
func fieldOf(r *wire.Request, name string) (value string, err error) {
	top, inner, nested := strings.Cut(name, ".")
	if r.Form != nil {
		if nested {
			return "", nil
		}
		value, _ = r.Form.Value(top)
		return value, nil
	}
	raw := r.Member(top)
	if raw != nil && nested {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return "", wire.BadRequest(top, "invalid_type", "Invalid type for '%s': expected an object", top)
		}
		raw = object[inner]
	}
	if raw == nil || string(raw) == "null" {
		return "", nil
	}
	if json.Unmarshal(raw, &value) != nil {
		return "", wire.BadRequest(name, "invalid_type",
			"Invalid type for '%s': expected a string, because it is a label of the call", name)
	}
	return value, nil
}

// read returns the value at a source; "" if it has none. The error is a *wire.Error.
func (l *Label) read(s LabelSource, c Caller, in LabelPlaces) (value string, err error) {
	switch {
	case s.Key:
		return c.KeyLabels[l.Name], nil
	case s.Header != "":
		list := in.Header.Values(s.Header)
		if len(list) > 1 {
			return "", wire.BadRequest(s.Header, "invalid_label", "The header %s is sent %d times; send it once", s.Header,
				len(list))
		}
		if len(list) == 1 {
			value = strings.TrimSpace(list[0])
		}
	case in.Field != nil:
		value, err = in.Field(s.Field)
	}
	if err == nil && !ledger.ValidLabelValue(value) {
		err = wire.BadRequest(strings.TrimPrefix(strings.TrimPrefix(s.String(), "header "), "body "), "invalid_label",
			"The label %s, from %s, must be at most %d letters, digits and . _ - : / @ + = ~ # %%", l.Name, s,
			ledger.MaxLabelValue)
	}
	return value, err
}

// runLabel is the label that has the names of runs as values.
const runLabel = "run"

// ofRun is the index of the source of values that a run fixes.
const ofRun = -1

// find returns the label's value and the index of the source that has it; len(From) if none has. A run fixes what its
// callers could choose themselves, and nothing that the operator chose.
func (l *Label) find(c Caller, in LabelPlaces) (value string, at int, err error) {
	if fixed := c.ofRuns(l.Name); fixed != "" && l.operators(c) == "" && l.open() {
		return fixed, ofRun, nil
	}
	for i, s := range l.From {
		value, err := l.read(s, c, in)
		if err != nil && l.IgnoreInvalid {
			continue
		}
		if err != nil || value != "" {
			return value, i, err
		}
	}
	return "", len(l.From), nil
}

// ofRuns returns the value of a label that the caller's runs fix, the outermost first.
func (c *Caller) ofRuns(label string) string {
	for i := range c.Runs {
		if value := c.Runs[i].Labels[label]; value != "" {
			return value
		}
	}
	return ""
}

// operators returns the value that an operator gave the caller's key.
func (l *Label) operators(c Caller) string {
	if slices.ContainsFunc(l.From, func(s LabelSource) bool { return s.Key }) {
		return c.KeyLabels[l.Name]
	}
	return ""
}

// fixed returns the value that a run of the caller cannot change.
func (l *Label) fixed(c Caller) string { return cmp.Or(l.operators(c), c.ofRuns(l.Name)) }

// open reports whether callers can choose the label's value.
func (l *Label) open() bool {
	return l.Name == runLabel || slices.ContainsFunc(l.From, func(s LabelSource) bool { return !s.Key })
}

// narrows reports whether a run of the caller may fix the value.
func (l *Label) narrows(c Caller, value string) bool {
	if fixed := l.fixed(c); fixed != "" {
		return value == fixed
	}
	return l.open()
}

// chosen reports whether the caller chooses the values of the source at an index. The operator
// chooses those of keys.
func (l *Label) chosen(at int) bool { return at == ofRun || at < len(l.From) && !l.From[at].Key }

func (l *Label) missing() error {
	places := make([]string, len(l.From))
	for i, s := range l.From {
		places[i] = s.String()
	}
	e := wire.BadRequest("", "missing_label", "The label %s is required. Set it in %s",
		l.Name, strings.Join(places, ", or in "))
	e.Param = strings.TrimPrefix(strings.TrimPrefix(places[0], "header "), "body ")
	return e
}

// ofBody reports whether a field of the body may have the value.
func (l *Label) ofBody() bool {
	return slices.ContainsFunc(l.From, func(s LabelSource) bool { return s.Field != "" })
}

// labeler finds the labels of calls.
type labeler struct {
	// count reports whether a value is within the label's MaxValues; nil: all are.
	count  func(ctx context.Context, org, label, value string, most int) (bool, error)
	outage *Outage
}

// Label returns the caller with the labels of a call. The error is a *wire.Error for the caller, or
// wraps budget.ErrUnavailable.
func (pl *Planner) Label(ctx context.Context, c Caller, in LabelPlaces) (Caller, error) {
	return pl.label(ctx, c, func(l *Label) (string, bool, error) {
		value, at, err := l.find(c, in)
		if err == nil && value == "" && l.Default == "" && l.Required {
			err = l.missing()
		}
		return value, l.chosen(at), err
	})
}

// KnownLabels is Label for a request that costs nothing: nothing is required, and no value is
// counted.
func (pl *Planner) KnownLabels(c Caller, in LabelPlaces) (Caller, error) {
	known := &Planner{policy: pl.policy}
	return known.label(context.Background(), c, func(l *Label) (string, bool, error) { //nolint:forbidigo // no I/O
		value, _, err := l.find(c, in)
		return value, false, err
	})
}

// label sets the labels that find returns. It counts those that the caller has chosen.
func (pl *Planner) label(
	ctx context.Context, c Caller, find func(l *Label) (value string, chosen bool, err error),
) (Caller, error) {
	policy := pl.policy.Load()
	if len(policy.Labels) == 0 {
		c.Labels = ""
		return c.grouped(), nil
	}
	values := make(map[string]string, len(policy.Labels))
	for i := range policy.Labels {
		l := &policy.Labels[i]
		value, chosen, err := find(l)
		if err == nil && chosen {
			value, err = pl.labels.within(ctx, c.Org, l, value)
		}
		if err != nil {
			return c, err
		}
		values[l.Name] = cmp.Or(value, l.Default)
	}
	var err error
	c.Labels, err = ledger.NewLabels(values)
	return c.grouped(), err
}

// grouped returns the caller with the user's current group as a label, so that the ledger names the
// group whose limits count the call.
func (c Caller) grouped() Caller {
	if group := c.Org.Groups[c.User]; group != c.Labels.Get(ledger.GroupLabel) {
		c.Labels = c.Labels.With(ledger.GroupLabel, group)
	}
	return c
}

// within returns the value, or ledger.OtherLabel if the org has too many different ones. While the
// store is unavailable, calls that are admitted without it keep their value.
func (ls *labeler) within(ctx context.Context, o *Org, l *Label, value string) (string, error) {
	if ls == nil || ls.count == nil || value == ledger.OtherLabel {
		return value, nil
	}
	counted := false
	err := ls.outage.Reach(ctx, o, []string{o.ID}, func(ctx context.Context) (err error) {
		counted, err = ls.count(ctx, o.ID, l.Name, value, l.MaxValues)
		return err
	})
	switch {
	case errors.Is(err, budget.ErrUnavailable) && o.WithoutStore():
		return value, nil
	case err != nil:
		return "", err
	case !counted:
		return ledger.OtherLabel, nil
	}
	return value, nil
}

// BatchLabels are the labels that the request which created a batch gives to all of its lines.
type BatchLabels struct {
	Labels ledger.Labels `json:"labels,omitempty"`
	// From is the index of each label's source. A line's own field replaces values of the same source and of later ones.
	From map[string]int `json:"from,omitempty"`
	// Run is the run that the lines belong to.
	Run ledger.RunPath `json:"run,omitempty"`
}

// LabelBatch returns the labels of a batch. A label that fields of its lines may have is not
// required yet.
func (pl *Planner) LabelBatch(ctx context.Context, c Caller, in LabelPlaces) (BatchLabels, error) {
	b := BatchLabels{From: map[string]int{}, Run: c.Run}
	labeled, err := pl.label(ctx, c, func(l *Label) (string, bool, error) {
		value, at, err := l.find(c, in)
		if err == nil && value == "" && l.Default == "" && l.Required && !l.ofBody() {
			err = l.missing()
		}
		b.From[l.Name] = at
		return value, l.chosen(at), err
	})
	b.Labels = labeled.Labels.With(ledger.GroupLabel, "") // its lines have the group when they run
	return b, err
}

// LabelLine returns the caller with the labels of one line of a batch.
func (pl *Planner) LabelLine(ctx context.Context, c Caller, b BatchLabels, r *wire.Request) (Caller, error) {
	c.Run = b.Run
	return pl.label(ctx, c, func(l *Label) (string, bool, error) {
		at, has := b.From[l.Name]
		if !has {
			at = len(l.From)
		}
		for i, s := range l.From {
			if i > at {
				break
			}
			if s.Field == "" {
				continue
			}
			value, err := l.read(s, c, LabelsIn(nil, r))
			if err != nil || value != "" {
				return value, true, err
			}
		}
		value := b.Labels.Get(l.Name)
		if value == "" && l.Default == "" && l.Required {
			return "", false, l.missing()
		}
		return value, false, nil
	})
}
