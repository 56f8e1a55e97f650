package budget

import (
	"slices"

	"github.com/llmguard/llmguard/budget/ledger"
)

// noteShadow records for the ledger which limits in shadow mode refused a hold or an extension,
// each once.
func (h *Hold) noteShadow() {
	for _, st := range h.Statuses {
		if st.Refused && st.Mode == Shadow {
			at := slices.IndexFunc(h.shadow, func(s ledger.Shadowed) bool { return s.Limit == st.LimitID })
			if at < 0 {
				at, h.shadow = len(h.shadow), append(h.shadow, ledger.Shadowed{Limit: st.LimitID})
			}
			noted := &h.shadow[at]
			noted.WaitMS, noted.Never = max(noted.WaitMS, st.Wait.Milliseconds()), noted.Never || st.Never
		}
	}
}

// allShadow returns what limits and spend caps in shadow mode would have done.
func (h *Hold) allShadow() []ledger.Shadowed {
	all := h.shadow
	for _, part := range h.caps {
		for _, one := range part.shadow {
			one.Cap = capOf(part).String()
			all = append(all[:len(all):len(all)], one)
		}
	}
	return all
}
