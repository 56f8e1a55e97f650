package budget

import (
	"fmt"
	"slices"
	"strings"
)

// Dimension is one thing to group and filter calls by: a user, a model, or a label.
type Dimension struct {
	// Name is that of the list below, or label:NAME.
	Name string

	rolled bool // the sums of days and hours have it
	of     func(*Call) string
}

// dimensions are all that is built in; lists and filters everywhere come from here.
var dimensions = []Dimension{
	{"org", true, func(c *Call) string { return c.Org }},
	{"user", true, func(c *Call) string { return c.User }},
	{"key", true, func(c *Call) string { return c.Key }},
	{"model", true, func(c *Call) string { return c.Model }},
	{"provider", true, func(c *Call) string { return c.Provider }},
	{"endpoint", true, func(c *Call) string { return c.Endpoint }},
	{RunDimension, false, func(c *Call) string { return string(c.Run) }},
}

// RunDimension is the dimension of runs. Its values are paths: see [RunPath].
const RunDimension = "run"

// LabelDimension begins the names of dimensions that are labels.
const LabelDimension = "label:"

// DimensionNames lists the built-in dimensions, and those of the given labels.
func DimensionNames(labels ...string) []string {
	var out []string
	for _, d := range dimensions {
		out = append(out, d.Name)
	}
	for _, name := range labels {
		out = append(out, LabelDimension+name)
	}
	return out
}

// LabelIn returns the label that a dimension's name stands for: label:NAME, or GroupLabel alone.
func LabelIn(dimension string) (label string, ok bool) {
	if dimension == GroupLabel {
		return dimension, true
	}
	return strings.CutPrefix(dimension, LabelDimension)
}

// DimensionOf returns the dimension with this name. Every valid name of a label is one, because the
// ledger may have labels that are no longer configured. GroupLabel may be named without the prefix.
func DimensionOf(name string) (Dimension, error) {
	if label, ok := LabelIn(name); ok {
		name = LabelDimension + label
	}
	if i := slices.IndexFunc(dimensions, func(d Dimension) bool { return d.Name == name }); i >= 0 {
		return dimensions[i], nil
	}
	label, ok := strings.CutPrefix(name, LabelDimension)
	if !ok || !ValidLabelName(label) {
		return Dimension{}, fmt.Errorf("%.80q is not one of %s, or label:NAME", name, strings.Join(DimensionNames(), ", "))
	}
	return Dimension{name, false, func(c *Call) string { return c.Labels.Get(label) }}, nil
}

// Label returns the name of the dimension's label; "" if it is not a label.
func (d Dimension) Label() string {
	label, _ := strings.CutPrefix(d.Name, LabelDimension)
	if label == d.Name {
		return ""
	}
	return label
}

// Of returns the call's value; empty if it has none.
func (d Dimension) Of(c *Call) string { return d.of(c) }

// call returns a roll-up of an org in the form that dimensions read.
func (r *Rollup) call(org string) Call {
	return Call{
		Org: org, User: r.User, Key: r.Key, Provider: r.Provider, Endpoint: r.Endpoint, Model: r.Model, Run: r.Run,
		Labels: r.Labels,
	}
}

// Sums returns what the entry adds to the sums of its day and hour. Of a late settle it adds no
// call if the hold had expired with a charge, because that was counted then.
func (e *Entry) Sums() Sums {
	u := e.Usage
	s := Sums{
		Cost: e.Cost, Input: u.Input, Cached: u.CachedInput, Written: u.CacheWrite + u.CacheWrite1h, Output: u.Output,
	}
	s.Split.Input, s.Split.CachedInput, s.Split.CacheWrite = e.Costs.Input, e.Costs.CachedInput, e.Costs.CacheWrite
	s.Split.Output, s.Split.Fees = e.Costs.Output, e.Costs.Fees
	s.Overrun = e.Overrun
	switch {
	case e.Kind == KindSettle, e.Kind == KindExpire, e.Kind == KindCharge, e.Kind == KindLate && e.Cost == e.Total:
		s.Calls = 1
	case e.Kind == KindVoid:
		s.Calls = -1
	}
	switch {
	case e.Kind == KindAdjust:
		s.Adjusted = e.Cost
	case e.Estimated, e.Kind == KindExpire, e.Kind == KindVoid:
		s.Estimated = e.Cost
	case e.Kind == KindLate:
		s.Estimated = e.Cost - e.Total // the estimate that it replaces
	}
	return s
}
