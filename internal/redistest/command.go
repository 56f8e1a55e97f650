package redistest

import (
	"context"
	"os/exec"
	"testing"
	"time"
)

// Command returns a program that a test runs to its end. It is killed after 10 minutes (3 hours in long runs).
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), workBound())
	t.Cleanup(cancel)
	return command(ctx, name, args)
}

// Process returns a program that a test starts and kills. What the test leaves, its cleanup kills.
func Process(t testing.TB, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return command(ctx, name, args)
}

func command(ctx context.Context, name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Minute // its children can keep its output open
	return cmd
}
