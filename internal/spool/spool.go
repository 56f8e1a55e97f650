// Package spool keeps the bodies and answers of calls while they move between callers and
// providers. What moves slowly takes disk, and memory only while it is worked on. All of
// it is counted, in all and by org.
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
	// Small is the size in bytes up to which a body or an answer stays in memory.
	Small = 1 << 20
	// DefaultDisk is the default of Options.Disk.
	DefaultDisk = 2_000_000_000
	// memoryShare is the part of the process's memory that Options.Memory is by default.
	memoryShare = 4
	// leastMemory is its least.
	leastMemory = 64 << 20
)

// Options are what a Store is built from. The zero value is ready for use.
type Options struct {
	// Memory is how many bytes of bodies and answers may be in memory; 0 is a quarter of
	// what the process may use (see [Limit]), and at least 64 MiB.
	Memory int64
	// Disk is how many of them may be in files of the temporary directory; 0 is 2 GB.
	// Negative: there are no files, and memory has them all.
	Disk    int64
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Store is the room for bodies and answers. It is safe for concurrent use.
type Store struct {
	// Memory and Disk count the bytes.
	Memory, Disk *Budget

	noFiles bool
	warn    sync.Once
	log     *slog.Logger
}

// DefaultMemory is the default of Options.Memory.
func DefaultMemory() int64 { return max(Limit()/memoryShare, leastMemory) }

// New returns a Store; it opens nothing.
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

// pricing is how many times its size a large body takes while its tokens are counted, at
// worst: a text of one letter over and over.
const pricing = 5

// Pricing is what a body of so many bytes takes of memory while it is priced, in bytes.
func (s *Store) Pricing(size int64) int64 {
	if size <= Small {
		return size
	}
	return max(size, min(pricing*size, s.Memory.total/2))
}

// FileError says that a file of a Store could not be written or read.
type FileError struct{ Err error }

func (e *FileError) Error() string { return "spool: " + e.Err.Error() }

// Unwrap returns what the system said.
func (e *FileError) Unwrap() error { return e.Err }

// NoRoom reports whether something could not be kept, by no fault of its reader.
func NoRoom(err error) bool {
	var full *FullError
	var file *FileError
	return errors.As(err, &full) || errors.As(err, &file)
}

// file makes a file that is gone when it is closed, or when the process dies; nil: there
// are none.
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
