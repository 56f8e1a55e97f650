package agents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// binary is llmguard, built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if skipped {
		return m.Run()
	}
	logging.Disable() // go-redis logs errors that it also returns
	dir, err := os.MkdirTemp("", "llmguard-agents-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "llmguard")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "-C", "../..", "build", "-ldflags=-s", "-o", binary, "./cmd/llmguard")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build llmguard: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
