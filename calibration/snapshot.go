package calibration

import "strings"

// snapshot is what is in force. It is never changed.
type snapshot struct {
	inputs  map[string]*model    // by name asked for, and by version
	outputs map[string]*modelOut // by name asked for
}

// modelOut is what is known of a model's output: by all orgs and by each.
type modelOut struct {
	produced
	orgs map[string]*orgOut
}

// orgOut is what an org's calls produce: by all users and by each.
type orgOut struct {
	produced // that of all orgs unless known
	known    bool
	users    map[string]produced
}

// model is what is known of a model under one name.
type model struct {
	version string
	classes [classes]factors
}

func newSnapshot(inputs, outputs map[string]entry, limit int) *snapshot {
	s := &snapshot{inputs: map[string]*model{}, outputs: newOutputs(outputs)}
	aliases, versions := map[string]string{}, map[string]*[classes]*entry{}
	for name, e := range inputs {
		parts := strings.Split(name, separator)
		switch {
		case parts[0] == "a" && len(parts) == 2:
			aliases[parts[1]] = e.alias
		case parts[0] == "v" && len(parts) == 3 && e.alias == "":
			class, ok := classOf(parts[2])
			if !ok {
				continue
			}
			if versions[parts[1]] == nil {
				versions[parts[1]] = new([classes]*entry)
			}
			versions[parts[1]][class] = &e
		}
	}
	for version := range versions { // a version may be asked for by its name
		if _, ok := aliases[version]; !ok {
			aliases[version] = version
		}
	}
	for name, version := range aliases {
		s.inputs[name] = newModel(name, version, versions[version], limit)
	}
	return s
}

// newModel calculates the factors for a model asked for by a name. The prior is
// that of the name: it is what the request was counted by.
func newModel(name, version string, entries *[classes]*entry, limit int) *model {
	m, prior := &model{version: version}, priorOf(name)
	for class := range m.classes {
		m.classes[class] = prior
		if entries != nil && entries[class] != nil {
			m.classes[class] = factorsOf(prior, entries[class], limit)
		}
	}
	return m
}

func newOutputs(entries map[string]entry) map[string]*modelOut {
	out := map[string]*modelOut{}
	for name, e := range entries {
		parts := strings.Split(name, separator)
		o, ok := e.produced()
		if !ok || len(parts) != 4 {
			continue
		}
		org, user, m := parts[1], parts[2], out[parts[3]]
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
