package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Dimension is one thing to group by: what a call has, as user, model or a label, which filters know
// too; the hour, day or month; or the class of tokens that was paid for.
type Dimension struct {
	// Name is of the list below, or label:NAME.
	Name string

	rolled bool // the sums of days and hours have it
	called bool // a call has it, so that filters and samples of calls can use it
	of     func(*part) string
}

// part is a part of what was spent, which a query adds to one row.
type part struct {
	*Call
	at    *Moment
	class string
}

// dimensions are all that is built in. Lists, flags and filters everywhere come from here.
var dimensions = []Dimension{
	{"org", true, true, func(p *part) string { return p.Org }},
	{"user", true, true, func(p *part) string { return p.User }},
	{"key", true, true, func(p *part) string { return p.Key }},
	{"model", true, true, func(p *part) string { return RollupModel(p.Model) }},
	{"provider", true, true, func(p *part) string { return p.Provider }},
	{"endpoint", true, true, func(p *part) string { return p.Endpoint }},
	{Run, false, true, func(p *part) string { return string(p.Run) }},
	{Hour, true, false, func(p *part) string { return p.at.Hour }},
	{Day, true, false, func(p *part) string { return p.at.Day }},
	{Month, true, false, func(p *part) string { return p.at.Month }},
	{Class, true, false, func(p *part) string { return p.class }},
}

// Names of dimensions. The values of Run are paths: see [RunPath]. Those of Class are of
// [Sums.ByClass].
const (
	Run   = "run"
	Hour  = "hour"
	Day   = "day"
	Month = "month"
	Class = "class"
)

// LabelPrefix begins the names of dimensions that are labels.
const LabelPrefix = "label:"

// Names lists the built-in dimensions of calls, and those of the given labels.
func Names(labels ...string) []string {
	var out []string
	for _, d := range dimensions {
		if d.called {
			out = append(out, d.Name)
		}
	}
	for _, name := range labels {
		out = append(out, LabelPrefix+name)
	}
	return out
}

// Groupings lists all built-in dimensions: those of calls, times, and classes.
func Groupings() []string {
	var out []string
	for _, d := range dimensions {
		out = append(out, d.Name)
	}
	return out
}

// LabelIn returns the label that a dimension's name stands for: label:NAME, or group alone.
func LabelIn(dimension string) (label string, ok bool) {
	if dimension == GroupLabel {
		return dimension, true
	}
	return strings.CutPrefix(dimension, LabelPrefix)
}

// GroupingOf returns the dimension with this name. Every valid name of a label is one, because the
// ledger may have labels that are no longer configured. The label group may be named without prefix.
func GroupingOf(name string) (Dimension, error) {
	if label, ok := LabelIn(name); ok && ValidLabelName(label) {
		return Dimension{LabelPrefix + label, false, true, func(p *part) string { return p.Labels.Get(label) }}, nil
	}
	if i := slices.IndexFunc(dimensions, func(d Dimension) bool { return d.Name == name }); i >= 0 {
		return dimensions[i], nil
	}
	return Dimension{}, fmt.Errorf("%.80q is not one of %s, group or label:NAME", name, strings.Join(Groupings(), ", "))
}

// DimensionOf is GroupingOf for what a call has.
func DimensionOf(name string) (Dimension, error) {
	d, err := GroupingOf(name)
	if err != nil || !d.called {
		return d, fmt.Errorf("%.80q is not one of %s, or label:NAME", name, strings.Join(Names(), ", "))
	}
	return d, nil
}

// ParseBy parses names of dimensions, separated by commas.
func ParseBy(list string) ([]Dimension, error) {
	var by []Dimension
	for name := range strings.SplitSeq(list, ",") {
		d, err := GroupingOf(name)
		if err != nil {
			return nil, err
		}
		by = append(by, d)
	}
	return by, nil
}

// By returns built-in dimensions.
func By(names ...string) []Dimension {
	by := make([]Dimension, len(names))
	for i, name := range names {
		by[i] = dimensions[slices.IndexFunc(dimensions, func(d Dimension) bool { return d.Name == name })]
	}
	return by
}

// LabelOf returns the only label among the names of dimensions; "" if there is none.
func LabelOf(names []string) (label string, err error) {
	for _, d := range names {
		name, ok := LabelIn(d)
		switch {
		case !ok:
			continue
		case label != "" && name != label:
			return "", fmt.Errorf("%s has two labels, %.40q and %.40q; choose one", strings.Join(names, ","), label, name)
		}
		label = name
	}
	return label, nil
}

// Label returns the name of the dimension's label; "" if it is not a label.
func (d Dimension) Label() string {
	label, ok := strings.CutPrefix(d.Name, LabelPrefix)
	if !ok {
		return ""
	}
	return label
}

// Of returns the call's value; empty if it has none.
func (d Dimension) Of(c *Call) string { return d.of(&part{Call: c, at: &Moment{}}) }

// Moment is the text of the time of a sum.
type Moment struct {
	Hour, Day, Month string // a UTC day without hourly sums has no hour

	begin time.Time
}

// MomentOf returns the text of an hour in a zone, or of a UTC day.
func MomentOf(begin time.Time, hourly bool, zone *time.Location) *Moment {
	m := &Moment{begin: begin}
	if hourly {
		begin = begin.In(zone)
		m.Hour = begin.Format(time.RFC3339)
	}
	m.Day, m.Month = begin.Format(time.DateOnly), begin.Format("2006-01")
	return m
}
