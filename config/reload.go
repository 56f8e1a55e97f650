package config

import (
	"bytes"
	"reflect"
	"slices"
)

// Reload is what becomes of a running configuration when its file has changed.
type Reload struct {
	// Config is to run from now on: Next, with the fields that only a restart
	// can change as they are.
	Config *Config
	// Changed names what differs and takes effect, by path and in the order of
	// the reference: orgs, queue.max_attempts.
	Changed []string
	// NeedsRestart names what differs and does not take effect before a restart.
	NeedsRestart []string
}

// Reload compares the running configuration with the one that is to replace it.
// Neither is changed.
func (c *Config) Reload(next *Config) Reload {
	merged := *next
	r := Reload{Config: &merged}
	r.section("", reflect.ValueOf(c).Elem(), reflect.ValueOf(&merged).Elem(), false)
	const listed = "prices_file"
	if !bytes.Equal(c.ListedPrices, next.ListedPrices) && !slices.Contains(r.Changed, listed) {
		r.Changed = append(r.Changed, listed)
	}
	return r
}

// section compares the fields of one section; fixed is for sections of which
// nothing can change.
func (r *Reload) section(path string, running, next reflect.Value, fixed bool) {
	for _, f := range fieldsOf(next.Type()) {
		at := join(path, f.name)
		old := running.Field(f.index)
		now := next.Field(f.index)
		stays := fixed || f.restart
		switch {
		case isSection(f.typ):
			r.section(at, old, now, stays)
		case same(old, now):
		case stays:
			now.Set(old)
			r.NeedsRestart = append(r.NeedsRestart, at)
		default:
			r.Changed = append(r.Changed, at)
		}
	}
}

// same compares two values of a field; of a part that another package reads only
// its text counts, not where it stands.
func same(a, b reflect.Value) bool {
	if raw, ok := a.Interface().(Raw); ok {
		return bytes.Equal(raw.YAML, b.Interface().(Raw).YAML)
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
