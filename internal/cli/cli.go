// Package cli implements the llmguard commands.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
)

// Main runs a command line until it finishes or ctx is done, and returns the exit code.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if err := run(ctx, args, stdout, stderr); err != nil {
		return exitCode(stderr, err)
	}
	return 0
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := Root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	c, err := root.ExecuteContextC(ctx)
	var missing noConfig
	if err != nil && c.Annotations[begun] == "" && !errors.As(err, &missing) {
		return &mistake{err}
	}
	return err
}

// Root returns the llmguard command with all its subcommands.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:           "llmguard",
		Short:         "OpenAI-compatible proxy that enforces spending limits and queues over-limit calls",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       thisBuild().line(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(nearFlag)
	root.PersistentFlags().String("context", "", "context to use (default: LLMGUARD_CONTEXT, or the current context)")
	_ = root.RegisterFlagCompletionFunc("context", completeContexts)
	root.AddCommand(contextCommand(), applyCommand(), devCommand(), roleCommand("serve", app.Proxy),
		roleCommand("worker", app.Worker),
		initCommand(), checkCommand(), doctorCommand(), configCommand(),
		pricesCommand(), usageCommand(), simulateCommand(), batchCommand(), topCommand(), docsCommand(), versionCommand())
	addOperations(root)
	subcommand(root, "keys").AddCommand(newKeyCommand())
	subcommand(root, "limits").AddCommand(limitsShadowCommand(), limitsSuggestCommand())
	finish(root)
	return root
}

var roleText = map[string]string{
	"serve":  "Run the proxy",
	"worker": "Run queued jobs at the rate of the provider quotas",
}

func roleCommand(name string, role app.Role) *cobra.Command {
	var path, profile string
	c := &cobra.Command{
		Use: name, Short: roleText[name], Args: cobra.NoArgs, Example: "  llmguard " + name + " -c llmguard.yaml",
		RunE: func(c *cobra.Command, _ []string) error {
			return profiled(profile, func() error { return app.RunFile(c.Context(), path, role, front.New, c.ErrOrStderr()) })
		},
	}
	configFlag(c, &path)
	c.Flags().StringVar(&profile, "cpuprofile", "",
		"write a CPU profile to this file, for go tool pprof")
	return c
}

// profiled runs f, and writes a CPU profile to path if it is not empty.
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
	c.Flags().StringVarP(path, "config", "c", "llmguard.yaml", "configuration file")
	wantFile(c, path)
}
