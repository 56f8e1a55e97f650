package wire

import (
	"net/http"
	"slices"
)

// maxCost is the largest plausible cost of an answer, in nano-USD: a million dollars.
const maxCost = 1_000_000 * nanoPerUSD

const (
	nanoDigits   = 9
	nanoPerUSD   = 1_000_000_000
	ticksPerNano = 10
)

// costReader collects the cost that a usage object reports. Vendors use different names; what the
// caller's own account at a third party is charged is added.
type costReader struct {
	total, ticks, upstream int64 // nano-USD
	own                    bool  // is_byok: upstream is billed in addition to the total
}

// member reads the value of a member, and reports whether it contains a cost.
func (c *costReader) member(l *lexer, name []byte) (bool, error) {
	object := l.peek() == '{'
	switch string(name) {
	case "cost": // OpenRouter, Requesty
		if object { // Perplexity
			return true, inside(l, "total_cost", &c.total)
		}
		return true, amount(l, &c.total)
	case "estimated_cost": // DeepInfra
		return true, amount(l, &c.total)
	case "cost_in_usd_ticks": // xAI
		at, err := l.value()
		c.ticks = (parseUSD(l.buf[at.Start:at.End], 0) + ticksPerNano - 1) / ticksPerNano
		return true, err
	case "cost_details":
		if object {
			return true, inside(l, "upstream_inference_cost", &c.upstream)
		}
	case "is_byok":
		c.own = l.peek() == 't'
	default:
		return false, nil
	}
	return true, l.skip()
}

func amount(l *lexer, nano *int64) error {
	at, err := l.value()
	*nano = parseUSD(l.buf[at.Start:at.End], nanoDigits)
	return err
}

func inside(l *lexer, member string, nano *int64) error {
	return l.object(func(name []byte) error {
		if string(name) != member {
			return l.skip()
		}
		return amount(l, nano)
	})
}

// nano returns the cost, and the one whose name says that it is in USD; 0 if no plausible one is
// reported.
func (c *costReader) nano() (cost, usd int64) {
	cost = c.total
	if c.own {
		cost += c.upstream
	}
	return plausible(cost), plausible(c.ticks)
}

func plausible(cost int64) int64 {
	if cost > maxCost {
		return 0
	}
	return cost
}

// costHeaders are the headers in which gateways report the cost of a call, in USD.
var costHeaders = []string{"X-Litellm-Response-Cost"}

// ParseCost returns the cost of the call according to the headers of an answer, in nano-USD; 0 if
// none is reported.
func ParseCost(h http.Header) int64 {
	most := int64(0)
	for _, name := range costHeaders {
		if n := parseUSD([]byte(h.Get(name)), nanoDigits); n <= maxCost {
			most = max(most, n)
		}
	}
	return most
}

// parseUSD parses a decimal amount, a JSON number or one in quotes, scaled by ten to the given
// power and rounded up. It returns 0 for negative, malformed or implausible input.
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
	if exp < 0 { // digits below the unit round up
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
