// Command worker drains the queues at the providers' quota rate. It is
// `llmguard worker` as a program of its own, for images and units that run
// nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/llmguard/llmguard/internal/app"
)

func main() {
	path := flag.String("config", "llmguard.yaml", "the configuration file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := app.RunFile(ctx, *path, app.Worker, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}
