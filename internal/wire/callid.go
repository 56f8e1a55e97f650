package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"time"
)

// crockford is the base32 alphabet of ULIDs in lower case, so that ids sort by time as strings and
// survive systems that fold case.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

const callIDLen = 26

// NewCallID returns a new id for a call: a ULID in lower case, 26 characters. Its first 48 bits are
// the current time in milliseconds, the other 80 are random. Ids from the same millisecond are in
// no particular order.
func NewCallID() string { return newCallID(time.Now()) }

func newCallID(now time.Time) string {
	var raw [16]byte
	rand.Read(raw[6:]) // never fails: the runtime aborts the process instead
	return callID(now, raw)
}

// DerivedCallID returns a call id derived from a time and a name: the same for the same input, and
// different for different names.
func DerivedCallID(at time.Time, name string) string {
	var raw [16]byte
	sum := sha256.Sum256([]byte(name))
	copy(raw[6:], sum[:])
	return callID(at, raw)
}

func callID(at time.Time, raw [16]byte) string {
	ms := uint64(at.UnixMilli())
	for i := range 6 {
		raw[i] = byte(ms >> (40 - 8*i))
	}

	// 26 digits hold 130 bits; the first digit carries only three.
	var text [callIDLen]byte
	var acc uint32
	bits, next := 2, 0
	for _, b := range raw {
		acc = acc<<8 | uint32(b)
		bits += 8
		for bits >= 5 {
			bits -= 5
			text[next] = crockford[acc>>bits&31]
			next++
		}
	}
	return string(text[:])
}

// CallTime returns the time in an id made by [NewCallID], to the millisecond, and whether id is
// well formed.
func CallTime(id string) (time.Time, bool) {
	if len(id) != callIDLen || id[0] > '7' {
		return time.Time{}, false
	}
	var ms int64
	for i := range callIDLen {
		v := strings.IndexByte(crockford, id[i])
		if v < 0 {
			return time.Time{}, false
		}
		if i < 10 {
			ms = ms<<5 | int64(v)
		}
	}
	return time.UnixMilli(ms), true
}
