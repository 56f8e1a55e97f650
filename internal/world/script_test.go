package world_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/world"
)

// binary is llmguard, built once for all scripts.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "llmguard-world-")
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

// unused are the operations that no script can use, and why.
var unused = map[string]string{"resolve": "a charge that comes too late needs hours"}

// TestScripts runs the scripts of testdata. When all of them run, each operation of administrators is used by at least
// one, with success.
func TestScripts(t *testing.T) {
	var mu sync.Mutex
	used := map[string]bool{}
	all := t.Run("script", func(t *testing.T) {
		world.Scripts(t, binary, "testdata", func(operations []string) {
			mu.Lock()
			defer mu.Unlock()
			for _, name := range operations {
				used[name] = true
			}
		})
	})
	if !all || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return
	}
	for _, op := range admin.Operations() {
		if !used[op.Name] && !op.Local && unused[op.Name] == "" { // a local command logs nothing
			t.Errorf("no script uses %s (%s %s); add it to the one of its subject in testdata", op.Name, op.Method, op.Path)
		}
	}
}
