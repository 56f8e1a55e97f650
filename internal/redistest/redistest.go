// Package redistest runs real redis-server processes for tests.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is one child redis-server on 127.0.0.1, ended when the test ends.
// Its methods are for one goroutine.
type Server struct {
	Addr string // host:port

	tb   testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd
	own  *redis.Client
}

// Option adds command line arguments to redis-server.
type Option func(*Server)

// WithAOF turns on the append-only file, fsynced every second.
func WithAOF() Option { return WithArgs("--appendonly", "yes", "--appendfsync", "everysec") }

// WithArgs passes raw arguments to redis-server.
func WithArgs(args ...string) Option {
	return func(s *Server) { s.args = append(s.args, args...) }
}

// Start runs a redis-server and waits until it answers. The test fails when
// redis-server is not on PATH: scripts are never tested on an imitation only.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	port := freePort(tb)
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", port), tb: tb, dir: tb.TempDir()}
	s.args = []string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--maxmemory-policy", "noeviction", "--loglevel", "warning",
		"--logfile", filepath.Join(s.dir, "redis.log"),
	}
	for _, opt := range opts {
		opt(s)
	}
	s.Restart()
	tb.Cleanup(s.Kill)
	return s
}

// Restart starts the process again on the same port and directory, and waits
// until it has loaded its data.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("start redis-server (make test installs it): %v", err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer rdb.Close()
	for range 3000 { // a large append-only file takes its time
		if rdb.Ping(context.Background()).Err() == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	s.tb.Fatalf("redis-server on %s did not come up: %s", s.Addr, log)
}

// Kill ends the process with SIGKILL; data not yet in the AOF is lost.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Signal sends a signal to the process, for pauses and slow deaths.
func (s *Server) Signal(sig os.Signal) error {
	if s.cmd == nil {
		return fmt.Errorf("redis-server on %s is not running", s.Addr)
	}
	return s.cmd.Process.Signal(sig)
}

// Client returns a new client, closed when the test ends.
func (s *Server) Client() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	s.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// direct returns the client that this package itself talks to the server with.
func (s *Server) direct() *redis.Client {
	if s.own == nil {
		s.own = redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, Protocol: 2})
		s.tb.Cleanup(func() { _ = s.own.Close() })
	}
	return s.own
}

// FlushAll empties the server.
func (s *Server) FlushAll() {
	s.tb.Helper()
	if err := s.Client().FlushAll(context.Background()).Err(); err != nil {
		s.tb.Fatalf("flush %s: %v", s.Addr, err)
	}
}

func freePort(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
