package ledger

import "strings"

// RunPath is a run and the runs it belongs to: their ids from the outermost to its own, joined with
// "/". "" is no run.
type RunPath string

const runSep = "/"

// ID returns the id of the run itself.
func (p RunPath) ID() string { return string(p[strings.LastIndex(string(p), runSep)+1:]) }

// IDs returns the ids from the outermost run to the run itself; nil for no run.
func (p RunPath) IDs() []string {
	if p == "" {
		return nil
	}
	return strings.Split(string(p), runSep)
}

// Outermost returns the id of the outermost run; "" for no run.
func (p RunPath) Outermost() string {
	id, _, _ := strings.Cut(string(p), runSep)
	return id
}

// Below returns the path of a run inside p.
func (p RunPath) Below(id string) RunPath {
	if p == "" {
		return RunPath(id)
	}
	return p + runSep + RunPath(id)
}

// Within reports whether the run is outer or inside it. Every run, and none, is within "".
func (p RunPath) Within(outer RunPath) bool {
	return outer == "" || p == outer || strings.HasPrefix(string(p), string(outer)+runSep)
}

// Parent returns the path without its last run.
func (p RunPath) Parent() RunPath { return p[:max(strings.LastIndex(string(p), runSep), 0)] }
