package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// ForPackage starts one server that all tests of a package share, runs them, and returns the
// exit code for TestMain. Tests must use distinct ids.
func ForPackage(m *testing.M, server **Server, opts ...Option) int {
	redis.SetLogger(silent{})
	tb := &packageTB{}
	defer tb.end()
	*server = Start(tb, opts...)
	return m.Run()
}

// ForExample starts a server for an example, which has no testing.TB, and returns a client of it
// and a function that ends both.
func ForExample() (rdb *redis.Client, stop func()) {
	tb := &packageTB{}
	server := Start(tb)
	return server.Client(), tb.end
}

// silent drops the client's log lines, because tests stop servers on purpose.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// packageTB lives as long as all tests of a package. It implements only what this package
// calls.
type packageTB struct {
	testing.TB
	cleanups []func()
}

func (p *packageTB) Helper() {}

func (p *packageTB) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

func (p *packageTB) TempDir() string {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *packageTB) Fatal(args ...any) {
	p.end()
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

func (p *packageTB) Fatalf(format string, args ...any) { p.Fatal(fmt.Sprintf(format, args...)) }

// end runs the package's cleanups, last one first.
func (p *packageTB) end() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
	p.cleanups = nil
}
