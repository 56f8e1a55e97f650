package wire

import "slices"

// maxCost is the largest cost of an answer that we believe, in nano-USD: a million
// dollars.
const maxCost = 1_000_000 * nanoPerUSD

const (
	nanoDigits  = 9
	nanoPerUSD  = 1_000_000_000
	ticksPerUSD = 10_000_000_000 // of xAI
)

// costReader collects what a usage object says the call cost. Vendors name it
// differently; what an account of the caller's own pays a third party is added.
type costReader struct {
	total, ticks, upstream int64 // nano-USD
	own                    bool  // is_byok: upstream is billed beside the total
}

// member reads the value of a member that tells a cost, and reports whether it is
// one.
func (c *costReader) member(l *lexer, name []byte) (bool, error) {
	switch string(name) {
	case "cost": // OpenRouter, Requesty; an object at Perplexity
		return true, c.amount(l, &c.total, "total_cost")
	case "estimated_cost": // DeepInfra
		return true, c.amount(l, &c.total, "")
	case "cost_in_usd_ticks":
		at, err := l.value()
		c.ticks = (parseUSD(l.buf[at.Start:at.End], 0) + ticksPerUSD/nanoPerUSD - 1) / (ticksPerUSD / nanoPerUSD)
		return true, err
	case "cost_details":
		return true, c.amount(l, &c.upstream, "upstream_inference_cost")
	case "is_byok":
		c.own = l.peek() == 't'
		return true, l.skip()
	}
	return false, nil
}

// amount reads USD into at: a number, or the member of an object.
func (c *costReader) amount(l *lexer, at *int64, inside string) error {
	if l.peek() == '{' {
		return l.object(func(name []byte) error {
			v, err := l.value()
			if inside != "" && string(name) == inside {
				*at = parseUSD(l.buf[v.Start:v.End], nanoDigits)
			}
			return err
		})
	}
	v, err := l.value()
	if inside != "upstream_inference_cost" {
		*at = parseUSD(l.buf[v.Start:v.End], nanoDigits)
	}
	return err
}

// nano is the cost in nano-USD, 0 when none is told that can be believed.
func (c *costReader) nano() int64 {
	n := max(c.total, c.ticks)
	if c.own {
		n += c.upstream
	}
	if n > maxCost {
		return 0
	}
	return n
}

// parseUSD reads a decimal amount, a JSON number or one in quotes, scaled by ten to
// the given power and rounded up. What is negative, no number or beyond belief is 0.
func parseUSD(raw []byte, power int) int64 {
	if len(raw) >= 2 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if !isNumber(raw) || raw[0] == '-' {
		return 0
	}
	digits, exp := significant(raw)
	exp += power
	up := int64(0)
	if exp < 0 { // what is below the unit counts as one
		cut := max(len(digits)+exp, 0)
		if len(digits) > 0 {
			up = 1
		}
		digits, exp = digits[:cut], 0
	}
	if len(digits)+exp > 18 {
		return 0
	}
	n, _ := parseDigits(append(slices.Clip(digits), zeros[:exp]...))
	return n + up
}

const zeros = "000000000000000000"

// isNumber reports whether raw is a JSON number and nothing else.
func isNumber(raw []byte) bool {
	l := lenient(raw)
	return len(raw) > 0 && (raw[0] == '-' || isDigit(raw[0])) && l.number() == nil && l.pos == len(raw)
}
