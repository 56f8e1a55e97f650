package wire

import "math"

// intFault is the reason why a JSON number is not an int64.
type intFault uint8

const (
	intOK intFault = iota
	intFraction
	intTooLarge // in either direction
)

// parseInt returns the value of a JSON number that is an integer in any spelling: 100, 100.0 and
// 1e2 are the same. Numbers of more than 18 digits are too large, and the result is the nearest
// int64. No float is involved.
func parseInt(raw []byte) (int64, intFault) {
	negative := len(raw) > 0 && raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	if len(raw) <= 18 {
		if v, ok := parseDigits(raw); ok {
			return signed(v, negative), intOK
		}
	}
	digits, exp := significant(raw)
	switch {
	case len(digits) == 0:
		return 0, intOK
	case exp < 0:
		return 0, intFraction
	case exp > 18 || len(digits)+exp > 18:
		return signed(math.MaxInt64, negative), intTooLarge
	}
	v, _ := parseDigits(digits)
	for range exp {
		v *= 10
	}
	return signed(v, negative), intOK
}

func signed(v int64, negative bool) int64 {
	if negative {
		return -v
	}
	return v
}

// parseDigits parses at most 18 digits and nothing else.
func parseDigits(b []byte) (v int64, ok bool) {
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, len(b) > 0
}

// significant splits an unsigned number into its digits, without zeros at either end, and the power
// of ten by which they are multiplied, which saturates.
func significant(raw []byte) (digits []byte, exp int) {
	const saturated = 1 << 40
	digits = make([]byte, 0, len(raw))
	point := false
	i := 0
	for ; i < len(raw) && raw[i] != 'e' && raw[i] != 'E'; i++ {
		if raw[i] == '.' {
			point = true
			continue
		}
		if len(digits) > 0 || raw[i] != '0' {
			digits = append(digits, raw[i])
		}
		if point {
			exp--
		}
	}
	if i < len(raw) {
		i++
		down := raw[i] == '-'
		if down || raw[i] == '+' {
			i++
		}
		power := 0
		for ; i < len(raw); i++ {
			power = min(power*10+int(raw[i]-'0'), saturated)
		}
		if down {
			power = -power
		}
		exp += power
	}
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		exp++
	}
	return digits, exp
}
