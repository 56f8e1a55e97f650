// Command llmguard is an OpenAI-compatible proxy that holds the money: every
// call is priced before it leaves, held against budgets in Redis, and billed
// exactly; a call that does not fit waits in a durable queue.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/timerslack"
)

func main() {
	if len(os.Args) > 1 && slices.Contains(stay, os.Args[1]) {
		timerslack.Widen()
	}
	logging.Disable() // go-redis prints lines of its own; what it says also comes back as errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		os.Exit(exitCode(os.Stderr, err))
	}
}

// stay are the commands that run until they are stopped.
var stay = []string{"dev", "serve", "worker"}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:           "llmguard",
		Short:         "An LLM cost guard: budgets that hold, and a queue instead of a refusal",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(devCommand(), roleCommand("serve", app.Proxy), roleCommand("worker", app.Worker),
		initCommand(), checkCommand(), doctorCommand(), configCommand(), orgsCommand(), usersCommand(), keysCommand(), limitsCommand(), adminsCommand(), changesCommand(),
		pricesCommand(), usageCommand(), simulateCommand(), batchCommand(), jobsCommand(), queueCommand(), topCommand(), webhooksCommand(), manCommand(), versionCommand())
	return root.ExecuteContext(ctx)
}

var roleText = map[string]string{
	"serve":  "Serve callers: authenticate, hold, forward, settle, queue",
	"worker": "Drain the queues at the providers' quota rate",
}

func roleCommand(name string, role app.Role) *cobra.Command {
	var path, profile string
	c := &cobra.Command{
		Use: name, Short: roleText[name], Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return profiled(profile, func() error { return app.RunFile(c.Context(), path, role, c.ErrOrStderr()) })
		},
	}
	configFlag(c, &path)
	c.Flags().StringVar(&profile, "cpuprofile", "", "write a profile of the processor time to this file, for go tool pprof")
	return c
}

// profiled runs f, and writes what it used of the processor to a file if one is named.
func profiled(path string, f func() error) error {
	if path == "" {
		return f()
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--cpuprofile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(fmt.Errorf("--cpuprofile: %w", err), file.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}

func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", "llmguard.yaml", "the configuration file")
	wantFile(c, path)
}
