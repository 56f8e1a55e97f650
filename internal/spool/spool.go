// Package spool buffers the bodies and responses of calls while they move between callers and
// providers. Slow ones are on disk, and in memory only while they are processed. All bytes are
// counted, in total and by org.
package spool

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Small is the maximum size in bytes of a body or response that stays in memory.
	Small = 1 << 20
	// DefaultDisk is the default of Options.Disk.
	DefaultDisk = 2_000_000_000
	// memoryShare is the divisor of the process's memory that yields the default of
	// Options.Memory.
	memoryShare = 4
	// leastMemory is the minimum of that default.
	leastMemory = 64 << 20
)

// Options configure a Store. The zero value is ready to use.
type Options struct {
	// Memory is how many bytes of bodies and responses may be in memory; 0 means a quarter of
	// what the process may use (see [Limit]), and at least 64 MiB.
	Memory int64
	// Disk is how many bytes may be in files in the temporary directory; 0 means 2 GB. If it is
	// negative, no files are used and everything stays in memory.
	Disk    int64
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Store provides room for bodies and responses. It is safe for concurrent use.
type Store struct {
	// Memory and Disk count the bytes.
	Memory, Disk *Budget

	noFiles bool
	warn    sync.Once
	log     *slog.Logger
}

// DefaultMemory returns the default of Options.Memory.
func DefaultMemory() int64 { return max(Limit()/memoryShare, leastMemory) }

// New returns a Store; it opens no files.
func New(o Options) *Store {
	if o.Memory <= 0 {
		o.Memory = DefaultMemory()
	}
	o.Disk = cmp.Or(o.Disk, DefaultDisk)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		Memory: newBudget("memory.bodies", o.Memory), Disk: newBudget("memory.spool", max(o.Disk, 0)),
		noFiles: o.Disk < 0, log: o.Log,
	}
	s.Memory.register(o.Metrics, "memory")
	s.Disk.register(o.Metrics, "disk")
	return s
}

// pricing is the worst-case memory for counting the tokens of a large body, as a multiple of
// its size: a text that repeats one letter.
const pricing = 5

// Pricing returns the memory in bytes that pricing a body of this size takes.
func (s *Store) Pricing(size int64) int64 {
	if size <= Small {
		return size
	}
	return max(size, min(pricing*size, s.Memory.total/2))
}

// FileError says that a file of a Store could not be written or read.
type FileError struct{ Err error }

func (e *FileError) Error() string { return "spool: " + e.Err.Error() }

// Unwrap returns the system's error.
func (e *FileError) Unwrap() error { return e.Err }

// NoRoom reports whether an error means that data could not be buffered, rather than that
// reading it failed.
func NoRoom(err error) bool {
	_, full := errors.AsType[*FullError](err)
	_, file := errors.AsType[*FileError](err)
	return full || file
}

// file creates a file that is deleted when it is closed or the process dies; nil if files are
// not available.
func (s *Store) file() *os.File {
	if s.noFiles {
		return nil
	}
	f, err := unnamed()
	if err != nil {
		s.warn.Do(func() {
			s.log.Warn("no files in the temporary directory (TMPDIR): large bodies and answers take memory", "err", err)
		})
		return nil
	}
	return f
}

func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "llmguard-*")
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %w", err), f.Close())
	}
	return f, nil
}
