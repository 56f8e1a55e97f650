// Command llmguard is an OpenAI-compatible proxy that holds the money: every
// call is priced before it leaves, held against budgets in Redis, and billed
// exactly; a call that does not fit waits in a durable queue.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/cli"
)

func main() {
	// net/http prints what a provider sends unasked, and that may name our account.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	redis.SetLogger(silent{}) // go-redis prints lines of its own; what it says also comes back as errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// silent is a logger that prints nothing.
type silent struct{}

// Printf implements the logger of go-redis.
func (silent) Printf(context.Context, string, ...any) {}
