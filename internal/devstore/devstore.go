// Package devstore starts a Redis for a process that has none: a child redis-server or
// valkey-server if one is installed, otherwise an in-process imitation without persistence. It
// is for a single process on one machine, never for production.
package devstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// Store is a running store. Close stops it.
type Store struct {
	// Addr is its address, host:port or a socket.
	Addr string
	// Kind describes it: "redis-server (child process)".
	Kind string
	// Durable reports whether data survives the process.
	Durable bool

	close func() error
}

// Close stops the store; a child server saves its data first.
func (s *Store) Close() error { return s.close() }

// Start starts a child server with its data in dir, or the in-process store if no server is
// installed. It creates dir, readable by the owner only.
func Start(ctx context.Context, dir string) (*Store, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return startChild(ctx, name, path, dir)
		}
	}
	return StartInProcess()
}

func startChild(ctx context.Context, name, path, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Socket paths are limited to about 100 bytes, so the socket is not below dir.
	run, err := os.MkdirTemp("", "llmguard-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(run, "redis.sock")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700",
		"--dir", dir, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
		"--maxmemory-policy", "noeviction", "--logfile", filepath.Join(dir, "redis.log"))
	ownGroup(cmd) // Ctrl-C must reach us only; the server stops after our last write
	ended, err := startBound(cmd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), os.RemoveAll(run))
	}
	s := &Store{
		Addr: socket,
		Kind: name + " (child process, data in " + dir + ")", Durable: true,
		close: func() error { return endChild(cmd, ended, run) },
	}
	if err := s.await(ctx); err != nil {
		_ = s.close()
		return nil, fmt.Errorf("%s did not come up (see %s): %w", name, filepath.Join(dir, "redis.log"), err)
	}
	return s, nil
}

// startBound starts a child from a thread that lives as long as the child. On Linux the kernel
// ends the child together with that thread, which includes the case that we are killed.
func startBound(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // after a signal the status is an error
		}
		close(done)
	}()
	return done, <-started
}

func endChild(cmd *exec.Cmd, ended <-chan struct{}, run string) error {
	err := cmd.Process.Signal(os.Interrupt)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		err = errors.Join(err, cmd.Process.Kill())
		<-ended
	}
	return errors.Join(err, os.RemoveAll(run))
}

func (s *Store) await(ctx context.Context) error {
	rdb := driver.Open(driver.Single, driver.Options(s.Addr))
	defer rdb.Close()
	var err error
	for range 500 {
		err = rdb.Ping(ctx).Err()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// expireEvery is the interval at which the imitation expires keys.
const expireEvery = 100 * time.Millisecond

// StartInProcess starts the imitation. A ticker expires its keys, because it has no clock of
// its own.
func StartInProcess() (*Store, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("in-process store: %w", err)
	}
	stop := make(chan struct{})
	go func() {
		tick := time.NewTicker(expireEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				m.FastForward(expireEvery)
			}
		}
	}()
	return &Store{
		Addr:  m.Addr(),
		Kind:  "in-process store",
		close: func() error { close(stop); m.Close(); return nil },
	}, nil
}
