package lua

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// Refused reports whether Redis replied with one of these error codes, to a command or within a
// script.
func Refused(err error, codes ...string) bool {
	var reply redisconn.Error
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

// refusing are the error codes by which a Redis reports that it cannot serve now.
var refusing = []string{
	"LOADING", "OOM", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS",
	"MOVED", "ASK", "UNBLOCKED", "NOAUTH", "ERR max number of clients",
}

// Unavailable reports whether an error of a command means that Redis could not be reached in time,
// or replied that it cannot serve now. It is false for other replies, for a caller's cancellation,
// and for the failure of an HTTP server, such as an object store.
func Unavailable(err error) bool {
	var request *url.Error
	if err == nil || errors.Is(err, context.Canceled) || errors.As(err, &request) {
		return false
	}
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		redisconn.NotSent(err) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) || Refused(err, refusing...)
}
