package devstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestChild: the child keeps its data across a restart, is accessible to its owner only, and
// leaves nothing but the data behind.
func TestChild(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for run := range 2 {
		s, err := Start(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		rdb := driver.Open(driver.Single, driver.Options(s.Addr))
		n, err := rdb.Incr(t.Context(), "n").Result()
		if err != nil || n != int64(run+1) {
			t.Errorf("run %d: counted %d, %v", run, n, err)
		}
		info, err := rdb.Info(t.Context()).Result()
		if err != nil || !strings.Contains(info, "aof_enabled:1") || !strings.Contains(info, "maxmemory_policy:noeviction") {
			t.Errorf("not as production should be: %v", err)
		}
		if !s.Durable || !strings.Contains(s.Kind, dir) || !strings.HasPrefix(s.Addr, "/") {
			t.Errorf("got %+v, want a durable store at a socket with data in %s", s, dir)
		}
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Dir(s.Addr)); !os.IsNotExist(err) {
			t.Errorf("the socket's directory is left behind: %v", err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v, %v", info, err)
	}
}

// TestChildFails: a child that cannot start is an error and leaves nothing behind.
func TestChildFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "redis-server"), []byte("#!/nonexistent\n"), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if _, err := Start(t.Context(), t.TempDir()); err == nil {
		t.Error("a server that cannot start was started")
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := os.WriteFile(filepath.Join(bin, "redis-server"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	if _, err := Start(ctx, t.TempDir()); err == nil {
		t.Error("a server that ended at once was waited for in vain")
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestInProcess: without a server on the PATH there is one in memory, whose keys expire.
func TestInProcess(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if s.Durable || s.Kind != "in-process store" {
		t.Errorf("got %+v, want an in-process store that is not durable", s)
	}
	rdb := driver.Open(driver.Single, driver.Options(s.Addr))
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "k", "v", 300*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(t.Context(), "kept", "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the key ends", func() bool { return rdb.Exists(t.Context(), "k").Val() == 0 })
	if v, err := rdb.Get(t.Context(), "kept").Result(); v != "v" {
		t.Errorf("a key of an hour: got %q, %v; want v", v, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
