package budget

import "github.com/llmguard/llmguard/budget/ledger"

// noteShadow records for the ledger which limits in shadow mode refused a hold or an extension,
// each once.
func (h *Hold) noteShadow() {
	for _, st := range h.Statuses {
		if st.Refused && st.Mode == Shadow {
			h.addShadow(ledger.Shadowed{Limit: st.LimitID, WaitMS: st.Wait.Milliseconds(), Never: st.Never})
		}
	}
}

func (h *Hold) addShadow(one ledger.Shadowed) {
	for i := range h.shadow {
		if old := &h.shadow[i]; old.Limit == one.Limit {
			old.WaitMS, old.Never = max(old.WaitMS, one.WaitMS), old.Never || one.Never
			return
		}
	}
	h.shadow = append(h.shadow, one)
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
