package lua

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Refused reports whether Redis answered with one of these error codes, to a command or
// within a script.
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

// Full reports whether Redis refused a write because its memory is full (OOM), or because
// it cannot save what it has, mostly as its disk is full (MISCONF). It answers then, and is
// not unavailable: callers can fill it, and must not lose their limits by that. Too few
// replicas (NOREPLICAS) are not full: a primary that was cut off refuses so, and callers
// cannot cause it.
func Full(err error) bool { return Refused(err, "OOM", "MISCONF") }
