package ownership

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var (
	beginScript = lua.Load("conversation_begin")
	endScript   = lua.Load("conversation_end")
)

func tokensKey(org, id string) string { return "lg:{" + org + "}:owned-tokens:" + id }

func openKey(org, id string) string { return "lg:{" + org + "}:owned-open:" + id }

// awaited is how long the end of a call that adds to a conversation is awaited. After that,
// what it may have added counts like the rest, and is corrected with it.
const awaited = time.Hour

// Addition is what a call in progress may add to a conversation.
type Addition struct {
	org, id, call     string
	tokens            int64
	base, corrections string // see lua/conversation_begin.lua
}

// Tokens returns how many tokens a conversation holds, including everything that calls in
// progress may add; it is never too low.
func (s *Store) Tokens(ctx context.Context, org, id string) (int64, error) {
	n, err := s.rdb.Get(ctx, tokensKey(org, id)).Int64()
	if err != nil && !redisconn.IsNil(err) {
		return 0, wrap(err)
	}
	return max(n, 0), nil
}

// Begin counts the tokens that a call may add to a conversation. It must be called before the
// request is sent, and be followed by End.
func (s *Store) Begin(ctx context.Context, org, id, call string, tokens int64) (Addition, error) {
	a := Addition{org: org, id: id, call: call, tokens: max(tokens, 0)}
	reply, err := beginScript.Run(ctx, s.rdb, []string{tokensKey(org, id), openKey(org, id)},
		"", call, a.tokens, awaited.Microseconds()).StringSlice()
	if err != nil {
		return a, wrap(err)
	}
	a.base, a.corrections = reply[0], reply[1]
	return a, nil
}

// Unknown is the total of a conversation that the provider has not counted.
const Unknown = -1

// End replaces what Begin counted: by added, the maximum number of tokens, and total, the
// provider's count of the conversation after the call, or Unknown. If another call's total came
// in between, only added counts. A total does not include what other calls in progress may add;
// that stays counted until they end.
func (s *Store) End(ctx context.Context, a Addition, added, total int64) error {
	return wrap(endScript.Run(ctx, s.rdb, []string{tokensKey(a.org, a.id), openKey(a.org, a.id)},
		a.call, max(added, 0), max(total, Unknown), a.base, a.corrections).Err())
}

// Added returns the tokens passed to Begin.
func (a Addition) Added() int64 { return a.tokens }
