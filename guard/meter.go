package guard

import "github.com/llmguard/llmguard/internal/wire"

// meter is how the calls of an endpoint are bounded, as far as that does not follow from the texts of
// the request and its output limit. What is nil follows from those.
type meter struct {
	// input counts the tokens of input, and fills in what else the plan holds.
	input func(*estimator) (int64, error)
	// output bounds the tokens of output.
	output func(*estimator) (int64, error)
}

// meters has a row for each endpoint that needs one. Their files add them.
var meters = map[wire.Endpoint]meter{}

// metered adds rows.
func metered(m meter, endpoints ...wire.Endpoint) meter {
	for _, ep := range endpoints {
		meters[ep] = m
	}
	return m
}

// units are the search units of a call: the fewest and the most that it can be billed, 0 if its price
// does not count them.
type units struct{ least, most int64 }

// checkUnits corrects search units that contradict what was sent, and returns why. A provider that
// counts units reports no tokens: the call counts with ours.
func (b *bill) checkUnits(u *wire.Usage) (faults []UsageFault) {
	p := b.plan
	switch {
	case u.SearchUnits < p.units.least:
		u.SearchUnits = p.units.most
		faults = append(faults, LowInput)
	case u.SearchUnits > 2*p.units.most: // its tokenizer counts no more than twice as many tokens
		faults = append(faults, HighInput)
	}
	if u.Input == 0 {
		u.Input = p.Input
	}
	return faults
}
