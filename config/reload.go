package config

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Reload is the result of reloading a running configuration from its changed file.
type Reload struct {
	// Config is the configuration to run from now on: the new one, with the old values of fields
	// that only a restart can change.
	Config *Config
	// Changed lists the paths of changes that take effect, in the order of the reference: orgs,
	// queue.max_attempts.
	Changed []string
	// NeedsRestart lists the paths of changes that do not take effect before a restart.
	NeedsRestart []string
}

// Reload compares the running configuration with the one that will replace it. It modifies neither.
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

// section compares the fields of one section; fixed means that nothing in it can change.
func (r *Reload) section(path string, running, next reflect.Value, fixed bool) {
	for _, f := range settings.FieldsOf(next.Type()) {
		at := join(path, f.Name)
		old := running.Field(f.Index)
		now := next.Field(f.Index)
		stays := fixed || f.Restart
		switch {
		case settings.IsSection(f.Type):
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

// same compares two values of a field. For parts that another package parses, it compares only the
// text, not the position.
func same(a, b reflect.Value) bool {
	if raw, ok := a.Interface().(Raw); ok {
		return bytes.Equal(raw.YAML, b.Interface().(Raw).YAML)
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
