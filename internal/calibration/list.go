package calibration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Row is what is known about one class of text for one model. Factors are per mille.
type Row struct {
	Org       string    `json:"org"`     // whose calls; empty: from versions that did not distinguish orgs
	Model     string    `json:"model"`   // as requested
	Version   string    `json:"version"` // that last answered
	Class     string    `json:"class"`
	N         int64     `json:"observations"` // counted up to 2,000
	Mean      int       `json:"mean_permille"`
	Hold      int       `json:"hold_permille"`
	Seen      int       `json:"seen_permille"` // observed mean, without the prior
	Base      int64     `json:"base_tokens"`
	PriorMean int       `json:"prior_mean_permille"`
	PriorHold int       `json:"prior_hold_permille"`
	Since     time.Time `json:"since"`
	Updated   time.Time `json:"updated"`
}

// List reads what is known about input from Redis, by model, class and org. Versions that a
// model no longer answers with are listed under their own names until they expire.
func (c *Calibration) List(ctx context.Context) ([]Row, error) {
	t := table{name: "input"}
	if _, err := t.read(ctx, c.rdb); err != nil {
		return nil, fmt.Errorf("calibration: list: %w", err)
	}
	s := newSnapshot(t.known, nil, c.opts.Cap)
	aliased := map[aliasKey]bool{}
	for name, m := range s.inputs {
		for org, own := range m.orgs {
			if name != own.version {
				aliased[aliasKey{org, own.version}] = true
			}
		}
	}
	var rows []Row
	for name, m := range s.inputs {
		for org, own := range m.orgs {
			if name == own.version && aliased[aliasKey{org, name}] {
				continue
			}
			for class := range classes {
				if own.entry(class) != nil {
					rows = append(rows, rowOf(org, name, own.version, class, m.of(org, class, c.opts.Cap)))
				}
			}
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Org, b.Org))
	})
	return rows, nil
}

func rowOf(org, name, version string, class Class, f factors) Row {
	prior, e := priorOf(name), f.entry
	r := Row{
		Org: org, Model: name, Version: version, Class: class.String(), N: e.n, Mean: f.mean, Hold: f.hold,
		Base: f.base, PriorMean: prior.mean, PriorHold: prior.hold, Since: e.since.UTC(), Updated: e.updated.UTC(),
	}
	if e.n > 0 {
		r.Seen = e.ratio()
	}
	return r
}
