package budget

// Group adds up roll-ups by a name of the caller's choice, and all of them. The list is gone
// through once, in its order.
func Group[N comparable](list []Rollup, name func(Rollup) N) (groups map[N]*Sums, total Sums) {
	groups = map[N]*Sums{}
	for _, r := range list {
		at := name(r)
		if groups[at] == nil {
			groups[at] = &Sums{}
		}
		groups[at].Add(r.Sums)
		total.Add(r.Sums)
	}
	return groups, total
}
