package redisconn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
)

// Script is a Lua script. It is safe for concurrent use.
type Script struct{ text, hash func() string }

// NewScript returns the script with a text.
func NewScript(text string) *Script { return ScriptOf(func() string { return text }) }

// ScriptOf returns the script with the text that read returns. It is read once, at the first use: most processes use
// few scripts.
func ScriptOf(read func() string) *Script {
	text := sync.OnceValue(read)
	return &Script{text, sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(text()))
		return hex.EncodeToString(sum[:])
	})}
}

// Text returns the script as it is sent to Redis.
func (s *Script) Text() string { return s.text() }

// Hash returns the SHA-1 by which Redis knows the script once it has run.
func (s *Script) Hash() string { return s.hash() }

// EvalSha runs the script if Redis knows it, see NoScript.
func (s *Script) EvalSha(ctx context.Context, by Scripter, keys []string, args ...any) Reply {
	return by.EvalSha(ctx, s.hash(), keys, args...)
}

// Eval sends the text and runs it.
func (s *Script) Eval(ctx context.Context, by Scripter, keys []string, args ...any) Reply {
	return by.Eval(ctx, s.text(), keys, args...)
}

// Run runs the script, and sends its text if Redis does not know it. It is not for pipelines.
func (s *Script) Run(ctx context.Context, by Scripter, keys []string, args ...any) Reply {
	r := s.EvalSha(ctx, by, keys, args...)
	if NoScript(r.Err()) {
		return s.Eval(ctx, by, keys, args...)
	}
	return r
}
