package calibration

import "strings"

// snapshot is the state in use. It is never modified.
type snapshot struct {
	inputs  map[string]*model    // by requested name, and by version
	outputs map[string]*modelOut // by requested name
}

// modelOut is the known output of a model: of all orgs and of each.
type modelOut struct {
	produced
	orgs map[string]*orgOut
}

// orgOut is the output of an org's calls: of all users and of each.
type orgOut struct {
	produced // that of all orgs if unknown
	known    bool
	users    map[string]produced
}

// model is what is known about a model under one name.
type model struct {
	shared [classes]factors // for orgs without their own calls
	orgs   map[string]orgIn
}

// orgIn is what an org's own calls show about a model.
type orgIn struct {
	version string // that last answered this org
	classes *[classes]*entry
}

func (o orgIn) entry(class Class) *entry {
	if o.classes == nil {
		return nil
	}
	return o.classes[class]
}

// of returns the factors of an org: what its own calls show, blended with what applies without
// them.
func (m *model) of(org string, class Class, limit int) factors {
	if own := m.orgs[org].entry(class); own != nil {
		return factorsOf(m.shared[class], own, limit)
	}
	return m.shared[class]
}

// ownBase ignores other orgs' calls, because it corrects what an org's calls teach.
func (m *model) ownBase(org string, class Class, limit int) int64 {
	own := m.orgs[org].entry(class)
	if own == nil {
		return 0
	}
	alone := m.shared[class]
	alone.base = 0
	return factorsOf(alone, own, limit).base
}

func newSnapshot(inputs, outputs map[string]entry, limit int) *snapshot {
	s := &snapshot{inputs: map[string]*model{}, outputs: newOutputs(outputs)}
	aliases, versions := parseInputs(inputs)
	for k := range versions { // a version may be requested by its name
		if _, ok := aliases[k]; !ok {
			aliases[k] = k.model
		}
	}
	for k, version := range aliases {
		m := s.inputs[k.model]
		if m == nil {
			m = &model{orgs: map[string]orgIn{}}
			s.inputs[k.model] = m
		}
		m.orgs[k.org] = orgIn{version, versions[aliasKey{k.org, version}]}
	}
	for name, m := range s.inputs {
		m.share(priorOf(name), limit)
	}
	return s
}

// parseInputs sorts entries into the versions that answer for each name, and what is known
// about each version, both by org.
func parseInputs(entries map[string]entry) (aliases map[aliasKey]string, versions map[aliasKey]*[classes]*entry) {
	aliases, versions = map[aliasKey]string{}, map[aliasKey]*[classes]*entry{}
	for name, e := range entries {
		parts := strings.Split(name, separator)
		kind, n := parts[0], map[string]int{"a": 2, "v": 3}[parts[0]]
		if n == 0 || len(parts) < n || len(parts) > n+1 || (kind == "a") != (e.alias != "") {
			continue
		}
		k := aliasKey{model: parts[1]}
		if len(parts) > n {
			k.org = parts[n]
		}
		if kind == "a" {
			aliases[k] = e.alias
			continue
		}
		if class, ok := classOf(parts[2]); ok {
			if versions[k] == nil {
				versions[k] = new([classes]*entry)
			}
			versions[k][class] = &e
		}
	}
	return aliases, versions
}

// share sets the factors of orgs without their own calls. The prior is that of the requested
// name, which was used to count the request. Evidence of any org raises the hold and none
// lowers it, so that no org can lower another's holds.
func (m *model) share(prior factors, limit int) {
	for class := range m.shared {
		f := prior
		for _, own := range m.orgs {
			if e := own.entry(Class(class)); e != nil {
				said := factorsOf(prior, e, limit)
				f.hold, f.base = max(f.hold, said.hold), max(f.base, said.base)
			}
		}
		m.shared[class] = f
	}
}

func newOutputs(entries map[string]entry) map[string]*modelOut {
	out := map[string]*modelOut{}
	for name, e := range entries {
		parts := strings.Split(name, separator)
		o, ok := e.produced()
		if !ok || len(parts) != 4 {
			continue
		}
		org := parts[1]
		user := parts[2]
		m := out[parts[3]]
		if m == nil {
			m = &modelOut{orgs: map[string]*orgOut{}}
			out[parts[3]] = m
		}
		if org == "" {
			m.produced = o
			continue
		}
		own := m.orgs[org]
		if own == nil {
			own = &orgOut{users: map[string]produced{}}
			m.orgs[org] = own
		}
		if user == "" {
			own.produced, own.known = o, true
		} else {
			own.users[user] = o
		}
	}
	for _, m := range out {
		for _, own := range m.orgs {
			if !own.known {
				own.produced = m.produced
			}
		}
	}
	return out
}
