package console

import (
	"slices"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/pricing"
)

// happened is what happened to calls, according to the ledger.
type happened struct {
	Calls, Waited int
	P50, P95      simulate.Milliseconds // of the waiting calls
	Spent         pricing.Nano

	waits []int64
}

// happenings hold the totals and those of each user.
type happenings struct {
	total happened
	users map[string]*happened
}

// entry adds a ledger entry. Corrections change only the spend.
func (h *happenings) entry(e ledger.Entry) {
	one := h.users[e.User]
	if one == nil {
		one = &happened{}
		h.users[e.User] = one
	}
	for _, to := range []*happened{&h.total, one} {
		to.Spent += e.Cost
		switch e.Kind {
		case ledger.KindSettle, ledger.KindExpire, ledger.KindCharge:
			to.Calls++
			if e.WaitedMS > 0 {
				to.Waited++
				to.waits = append(to.waits, e.WaitedMS)
			}
		}
	}
}

func (h *happenings) finish() {
	h.total.finish()
	for _, one := range h.users {
		one.finish()
	}
}

func (h *happened) finish() {
	slices.Sort(h.waits)
	at := func(percent int) simulate.Milliseconds {
		if len(h.waits) == 0 {
			return 0
		}
		return simulate.Milliseconds(h.waits[(len(h.waits)*percent+99)/100-1])
	}
	h.P50 = at(50)
	h.P95 = at(95)
	h.waits = nil
}
