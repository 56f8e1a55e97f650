// Command worker drains the queues at the rate of the providers' quotas. It is `llmguard
// worker` as a separate program, for images and units that run nothing else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

func main() {
	// net/http logs unsolicited data from a provider, which may name our account.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	driver.Quiet()
	path := flag.String("config", "llmguard.yaml", "the configuration file")
	flag.StringVar(path, "c", "llmguard.yaml", "the same as -config, as in llmguard serve")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	if err := app.RunFile(ctx, *path, app.Worker, nil, os.Stderr); err != nil {
		complain(err)
		os.Exit(1)
	}
}

// complain prints why the worker ended. Each configuration error is on its own line that starts
// with the file name.
func complain(err error) {
	if wrong, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(os.Stderr, wrong)
		return
	}
	fmt.Fprintln(os.Stderr, "worker:", err)
}
