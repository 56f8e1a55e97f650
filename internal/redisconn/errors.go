package redisconn

import (
	"errors"
	"slices"
	"strings"
)

// Error is an error that Redis replied. Other errors mean that there is no reply.
type Error interface {
	error
	RedisError()
}

// IsNil reports whether Redis replied that a key, a field or a member does not exist.
func IsNil(err error) bool { return replied(err) == "redis: nil" }

// NoScript reports whether Redis does not know the script of an EVALSHA. It has not run then.
func NoScript(err error) bool {
	return strings.HasPrefix(strings.TrimPrefix(replied(err), "ERR "), "NOSCRIPT")
}

// replied returns the text of an error of Redis, "" for other errors.
func replied(err error) string {
	if reply, ok := errors.AsType[Error](err); ok {
		return reply.Error()
	}
	return ""
}

// Errors of the client library, which has no types for them; package driver compares the texts.
const (
	poolTimeout   = "redis: connection pool timeout"
	poolExhausted = "redis: connection pool exhausted"
	clientClosed  = "redis: client is closed"
)

// PoolTimeout reports whether all connections of the client were in use for too long.
func PoolTimeout(err error) bool { return says(err, poolTimeout) }

// NotSent reports whether the client could not send a command because it had no connection or is closed.
func NotSent(err error) bool { return says(err, poolTimeout, poolExhausted, clientClosed) }

// says reports whether err wraps an error with one of these texts.
func says(err error, texts ...string) bool {
	if err == nil {
		return false
	}
	if slices.Contains(texts, err.Error()) {
		return true
	}
	switch w := err.(type) { //nolint:errorlint // looks at each error of the chain
	case interface{ Unwrap() error }:
		return says(w.Unwrap(), texts...)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(w.Unwrap(), func(err error) bool { return says(err, texts...) })
	}
	return false
}
