// Package redistest runs real redis-server processes for tests.
package redistest

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// Server is a child redis-server on 127.0.0.1 that ends with the test. Its methods are not safe
// for concurrent use.
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

// Start runs a redis-server and waits until it replies. The test fails if redis-server is not
// on the PATH, because scripts must not be tested on an imitation only. It also disables the
// log lines of go-redis, which would be mixed with the results.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	logging.Disable()
	s := &Server{tb: tb, dir: tb.TempDir()}
	tb.Cleanup(s.Kill)
	for range 20 {
		port := FreePort(tb)
		s.Addr = net.JoinHostPort("127.0.0.1", port)
		s.args = []string{
			"--port", port, "--bind", "127.0.0.1", "--dir", s.dir,
			"--save", "", "--maxmemory-policy", "noeviction", "--loglevel", "warning",
			"--logfile", filepath.Join(s.dir, "redis.log"),
		}
		for _, opt := range opts {
			opt(s)
		}
		if s.launch() {
			return s
		}
	}
	s.fail()
	return nil
}

// program is the server that all tests run: redis-server, or the program in
// LLMGUARD_REDIS_SERVER, such as another version or valkey-server.
func program() string {
	return cmp.Or(os.Getenv("LLMGUARD_REDIS_SERVER"), "redis-server")
}

// Restart starts the process again on the same port and directory, and waits
// until it has loaded its data.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if !s.launch() {
		s.fail()
	}
}

// launch starts the process and waits until it replies. It returns false if another process has
// its port.
func (s *Server) launch() bool {
	s.tb.Helper()
	logged := len(s.log())
	s.cmd = Process(s.tb, program(), s.args...)
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		s.tb.Fatalf("start %s (make test installs redis-server): %v", program(), err)
	}
	pause := time.Millisecond
	for end := time.Now().Add(time.Minute); time.Now().Before(end); { // loading a large append-only file takes time
		if s.answers() {
			return true
		}
		if strings.Contains(s.log()[logged:], "Address already in use") {
			s.Kill()
			return false
		}
		time.Sleep(pause)
		pause = min(pause*5/4, 10*time.Millisecond)
	}
	return false
}

// answers reports whether this process itself accepts commands, because another one may have
// its port. It does not use a client, whose second attempt would come only after 100 ms.
func (s *Server) answers() bool {
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "INFO server\r\nPING\r\n")
	self, own := fmt.Sprintf("process_id:%d", s.cmd.Process.Pid), false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch text := lines.Text(); {
		case text == self:
			own = true
		case text == "+PONG":
			return own
		case strings.HasPrefix(text, "-"): // still loading
			return false
		}
	}
	return false
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	return string(text)
}

func (s *Server) fail() {
	s.tb.Helper()
	s.tb.Fatalf("redis-server on %s did not come up: %s", s.Addr, s.log())
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

// Client returns a new client, closed at the end of the test.
func (s *Server) Client() *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	s.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// DB returns Client as the program takes it.
func (s *Server) DB() redisconn.DB { return DB(s.Client()) }

// DB returns a client as the program takes it.
func DB(rdb redis.UniversalClient) redisconn.DB { return driver.DB(rdb) }

// direct returns this package's own client for the server.
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

// FreePort returns a port outside the range for outgoing connections. A port within that range
// may be taken while a killed server is down, even by a client that dials it and connects to
// itself.
func FreePort(tb testing.TB) string {
	tb.Helper()
	for range 200 {
		if port := 11000 + rand.IntN(19000); free(port) {
			return strconv.Itoa(port)
		}
	}
	tb.Fatal("no free port from 11000 to 29999")
	return ""
}
