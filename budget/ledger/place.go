package ledger

import (
	"context"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// MostParts is the maximum number of parts of an org, and the highest number of one.
const MostParts = 64

// Key returns the Redis key of a record of an org, or of a part of it (Call.Place). All keys of a
// place share a hash tag, so that one script may use them on a cluster.
func Key(place, name string) string {
	return "lg:{" + place + "}:" + name
}

// ValidOrg rejects org ids that would break hash tags or the names of parts.
func ValidOrg(org string) bool {
	return org != "" && !strings.ContainsAny(org, "{}"+partSep)
}

// partSep separates an org from the number of its part. No org id contains it.
const partSep = "#"

const placeLetters = "abcdefghijklmnopqrstuvwxyz"

// Place returns the hash tag of the call's keys: its org, a part of it such as acme#33cj, or the scope
// of a spend cap. The first part has no number, so that an org which is not spread has one place.
func (c Call) Place() string {
	if c.Part <= 1 {
		return c.Org
	}
	return PlaceOf(c.Org, c.Part)
}

// PlaceOf returns the place of a part of an org.
func PlaceOf(org string, part int) string {
	if part <= 1 {
		return org
	}
	return evenly(org, org+partSep+strconv.Itoa(part), (part-1)*clusterSlots/MostParts)
}

const clusterSlots = 1 << 14

// evenly returns a name with two letters appended, such that its slot is at a distance after that of
// the org, or closely after. So the parts of an org are at equal distances, and masters that have
// equal ranges of slots have equally many of them.
func evenly(org, name string, distance int) string {
	first, crc := crc16(0, org), crc16(0, name)
	var letters [2]byte
	for letters[0] = 'a'; letters[0] <= 'z'; letters[0]++ {
		next := crcOf(crc, letters[0])
		for letters[1] = 'a'; letters[1] <= 'z'; letters[1]++ {
			if (crcOf(next, letters[1])-first-uint16(distance))%clusterSlots < clusterSlots/MostParts/2 {
				return name + string(letters[:])
			}
		}
	}
	return name // anywhere
}

// crc16 continues the checksum from which Redis Cluster computes slots.
func crc16(crc uint16, text string) uint16 {
	for i := range len(text) {
		crc = crcOf(crc, text[i])
	}
	return crc
}

func crcOf(crc uint16, b byte) uint16 {
	const poly = 0x1021
	crc = crc<<4 ^ crc>>12*poly ^ uint16(b>>4)*poly
	return crc<<4 ^ crc>>12*poly ^ uint16(b&15)*poly
}

// SplitPlace returns the org and the part of a place.
func SplitPlace(place string) (org string, part int) {
	org, number, _ := strings.Cut(place, partSep)
	part, err := strconv.Atoi(strings.TrimRight(number, placeLetters))
	if err != nil {
		return org, 1
	}
	return org, part
}

// OrgOf returns the org of a hash tag.
func OrgOf(tag string) string {
	org, _ := SplitPlace(tag)
	return org
}

// PartsName is the org's SET of the parts that ever had calls, except the first.
const PartsName = "parts"

// NotePart records the part of a place in a batch of commands, for ever.
func NotePart(ctx context.Context, pipe redisconn.Pipe, place string) {
	if org, part := SplitPlace(place); part > 1 {
		pipe.SAdd(ctx, Key(org, PartsName), part)
	}
}
