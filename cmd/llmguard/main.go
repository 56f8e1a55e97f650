// Command llmguard is an OpenAI-compatible proxy that enforces spending limits. Before a call
// is sent, its maximum cost is reserved against budgets in Redis; when it ends, it is billed
// exactly. A call over a limit waits in a durable queue.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/llmguard/llmguard/internal/cli"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

func main() {
	// net/http logs unsolicited data from a provider, which may name our account.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	driver.Quiet()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
