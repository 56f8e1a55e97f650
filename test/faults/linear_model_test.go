package faults

import (
	"fmt"
	"maps"

	"github.com/anishathalye/porcupine"
)

// The externally visible state of a limit without a window: calls that are held, settled or
// voided, and their sum.

type linearIn struct {
	op     string // hold, extend, settle, void, peek
	id     string
	amount int64 // of a hold, an extension or a charge
}

type linearOut struct {
	verdict  string // ok, refused, ended
	charged  int64
	replayed bool
	used     int64 // result of peek
	held     int64
}

type linearCall struct {
	state  byte // h held, s settled, v voided
	amount int64
}

// linearStep is the complete specification: which reply is allowed, and the state after it.
func linearStep(budget int64) func(state, input, output any) (bool, any) {
	return func(state, input, output any) (bool, any) {
		calls, in, out := state.(map[string]linearCall), input.(linearIn), output.(linearOut)
		c := calls[in.id]
		used, held := int64(0), int64(0)
		for _, other := range calls {
			used += other.amount
			if other.state == 'h' {
				held += other.amount
			}
		}
		becomes := func(c linearCall) (bool, any) {
			next := maps.Clone(calls)
			next[in.id] = c
			return true, next
		}
		switch in.op {
		case "peek":
			return out.used == used && out.held == held, calls
		case "hold":
			switch {
			case c.state == 's' || c.state == 'v':
				return out.verdict == "ended", calls
			case c.state == 'h':
				return out.verdict == "ok", calls
			case used+in.amount > budget:
				return out.verdict == "refused", calls
			case out.verdict == "ok":
				return becomes(linearCall{'h', in.amount})
			}
		case "extend":
			more := max(in.amount-c.amount, 0)
			switch {
			case c.state != 'h':
				return out.verdict == "ended", calls
			case more > 0 && used+more > budget:
				return out.verdict == "refused", calls
			case out.verdict == "ok":
				return becomes(linearCall{'h', c.amount + more})
			}
		case "settle":
			if c.state == 's' {
				return out.replayed && out.charged == c.amount, calls
			}
			if !out.replayed && out.charged == in.amount {
				return becomes(linearCall{'s', in.amount})
			}
		case "void":
			if c.state == 's' {
				return true, calls
			}
			return becomes(linearCall{'v', 0})
		}
		return false, calls
	}
}

func linearModel(budget int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return map[string]linearCall{} },
		Step: linearStep(budget),
		Equal: func(a, b any) bool {
			return maps.Equal(a.(map[string]linearCall), b.(map[string]linearCall))
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
}
