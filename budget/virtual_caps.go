package budget

import "github.com/llmguard/llmguard/budget/ledger"

// Bound is a caller bound to its limits and to each spend cap that applies.
type Bound struct {
	Own  *Standing
	Caps []*Standing // in the order of Of
	Of   []Cap
}

// BindAll is [Virtual.Bind] with spend caps.
func (v *Virtual) BindAll(limits []Limit, caps []Cap, c ledger.Call) (*Bound, error) {
	own, err := v.Bind(limits, c)
	if err != nil {
		return nil, err
	}
	b := &Bound{Own: own, Of: caps}
	for _, spend := range caps {
		on, err := v.Bind(spend.Limits, spend.of(ledger.Call{}))
		if err != nil {
			return nil, err
		}
		b.Caps = append(b.Caps, on)
	}
	return b, nil
}

// HoldAll holds for a new call on its limits and all caps, or on none of them. The holds are in this order.
func (v *Virtual) HoldAll(now int64, b *Bound, most Amounts) ([]*VirtualHold, *ExceededError) {
	h, refusal := v.Hold(now, b.Own, most, most)
	if refusal != nil {
		return nil, refusal
	}
	held := []*VirtualHold{h}
	for i, on := range b.Caps {
		h, refusal = v.Hold(now, on, most, most)
		if refusal != nil {
			refusal.Cap = &b.Of[i]
			v.VoidAll(now, held)
			return nil, refusal
		}
		held = append(held, h)
	}
	return held, nil
}

// VoidAll voids the holds of a call.
func (v *Virtual) VoidAll(now int64, held []*VirtualHold) {
	for _, h := range held {
		v.Void(now, h)
	}
}
