package lua

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Refused reports whether Redis replied with one of these error codes, to a command or within a
// script.
func Refused(err error, codes ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return slices.ContainsFunc(codes, func(code string) bool {
		return strings.HasPrefix(text, code+" ") || strings.Contains(text, ": "+code+" ") ||
			strings.Contains(text, ": -"+code+" ") // Redis 6.2, within a script
	})
}

// Full reports whether Redis refused a write because its memory is full (OOM), or because it cannot
// persist its data, usually because the disk is full (MISCONF). Redis does reply then, so it is not
// unavailable: callers can fill it, and must not escape their limits by doing so. A lack of
// replicas (NOREPLICAS) does not count as full: a primary that was cut off refuses that way, and
// callers cannot cause it.
func Full(err error) bool { return Refused(err, "OOM", "MISCONF") }
