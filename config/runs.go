package config

import "time"

// checkRuns checks the bounds of an org's runs.
func checkRuns(m *mistakes, path string, r Runs) {
	if r.MaxAmount.N > 0 && !r.MaxAmount.Money {
		m.failAt(path+".max_amount", `must be money such as "$50"`)
	}
	if r.MaxDepth < 0 || r.MaxDepth > 4 {
		m.failAt(path+".max_depth", "must be from 0, for no runs, to 4")
	}
	if r.MaxOpen < 1 || r.MaxOpen > 100_000 {
		m.failAt(path+".max_open", "must be from 1 to 100000; max_depth: 0 disables runs")
	}
	if r.MaxLife < time.Minute || r.MaxLife > 30*24*time.Hour {
		m.failAt(path+".max_life", "must be from 1m to 30d")
	}
}
