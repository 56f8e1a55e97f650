package spool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

func small(memory, disk int64) *Store { return New(Options{Memory: memory, Disk: disk}) }

// TestOneOrgLeavesRoom: however much one org takes, another one still gets some, and so does a
// third.
func TestOneOrgLeavesRoom(t *testing.T) {
	b := small(1200, -1).Memory
	for _, org := range []string{"greedy", "greedier", "honest"} {
		n := 0
		for b.Take(t.Context(), org, 10, 0) == nil {
			n++
		}
		if n < 10 {
			t.Errorf("%s got %d bytes of 1200, want a share", org, 10*n)
		}
	}
	if used := b.Used(); used > 1200 {
		t.Errorf("%d bytes are taken of 1200", used)
	}
}

// TestRoomIsWaitedFor: returned bytes go to a waiter, within its patience.
func TestRoomIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := small(1000, -1).Memory
		if err := b.Take(t.Context(), "a", 900, 0); err != nil {
			t.Fatal(err)
		}
		var full *FullError
		err := b.Take(t.Context(), "b", 200, time.Second)
		if !errors.As(err, &full) || full.Setting != "memory.bodies" {
			t.Errorf("got %v, want that memory.bodies is full", err)
		}
		time.AfterFunc(time.Second, func() { b.Give("a", 900) })
		if err := b.Take(t.Context(), "b", 200, time.Minute); err != nil {
			t.Errorf("got %v, want the bytes that were given back", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Take(ctx, "c", 900, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the caller left", err)
		}
		b.Give("b", 200)
		if b.Used() != 0 || len(b.held) != 0 || len(b.waiters) != 0 || len(b.waiting) != 0 {
			t.Errorf("something is left: %d bytes, %v, %v", b.Used(), b.held, b.waiting)
		}
	})
}

// TestBuffer: what is written can be read, in memory or on disk; large contents use disk
// instead of memory, and nothing is left after closing.
func TestBuffer(t *testing.T) {
	for _, test := range []struct {
		name   string
		size   int64
		known  bool
		files  bool
		onDisk bool
	}{
		{"empty", 0, true, true, false},
		{"small", 1000, true, true, false},
		{"small, of unknown length", 300_000, false, true, false},
		{"large", 3 * Small, true, true, true},
		{"large, of unknown length", 3*Small + 7, false, true, true},
		{"large, without files", 3 * Small, true, false, false},
		{"large, of unknown length, without files", 3*Small + 7, false, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := int64(1 << 30)
			if !test.files {
				disk = -1
			}
			s := small(1<<30, disk)
			b := s.Buffer(t.Context(), "acme", 0)
			text := bytes.Repeat([]byte("0123456"), int(test.size/7+1))[:test.size]
			length := int64(-1)
			if test.known {
				length = test.size
			}
			if err := b.Expect(length); err != nil {
				t.Fatal(err)
			}
			if err := b.Fill(bytes.NewReader(text)); err != nil {
				t.Fatal(err)
			}
			if got := s.Memory.Used() == 0; got != test.onDisk && test.size > 0 {
				t.Errorf("takes %d bytes of memory", s.Memory.Used())
			}
			if got := s.Disk.Used() > 0; got != test.onDisk {
				t.Errorf("takes %d bytes of disk", s.Disk.Used())
			}
			var out bytes.Buffer
			if _, err := b.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), text) {
				t.Errorf("WriteTo: %d bytes, %v", out.Len(), err)
			}
			at, err := io.ReadAll(io.NewSectionReader(&b, 0, b.Size()))
			if err != nil || !bytes.Equal(at, text) {
				t.Errorf("ReadAt: %d bytes, %v", len(at), err)
			}
			whole, err := b.Bytes()
			if err != nil || !bytes.Equal(whole, text) {
				t.Errorf("Bytes: %d bytes, %v", len(whole), err)
			}
			if used := s.Memory.Used(); used < test.size {
				t.Errorf("%d bytes count as %d", test.size, used)
			}
			b.Close()
			if s.Memory.Used() != 0 || s.Disk.Used() != 0 {
				t.Errorf("left: %d of memory, %d of disk", s.Memory.Used(), s.Disk.Used())
			}
		})
	}
}

// TestBufferIsFull: without room, writing fails and holds nothing, and nothing read before is
// lost.
func TestBufferIsFull(t *testing.T) {
	for _, test := range []struct {
		setting      string
		memory, disk int64
		size, known  int64
	}{
		{"memory.bodies", 1000, 2000, 2000, 2000},
		{"memory.bodies", 100_000, 2000, 200_000, -1},
		{"memory.spool", 1 << 30, 2000, 2 * Small, 2 * Small},
		{"memory.spool", 1 << 30, 2000, 2 * Small, -1},
		{"memory.spool", 1 << 30, diskStep + 1000, 3 * diskStep, -1},
	} {
		s := small(test.memory, test.disk)
		b := s.Buffer(t.Context(), "acme", 0)
		text := strings.Repeat("0123456", int(test.size)/7+1)[:test.size]
		from := strings.NewReader(text)
		err := b.Expect(test.known)
		if err == nil {
			err = b.Fill(from)
		}
		var full *FullError
		if !errors.As(err, &full) || full.Setting != test.setting || !NoRoom(err) {
			t.Errorf("%+v: got %v, want that it is full", test, err)
		}
		var out strings.Builder
		if _, err := b.WriteTo(&out); err != nil {
			t.Error(err)
		}
		rest, _ := io.ReadAll(from)
		if out.String()+string(rest) != text {
			t.Errorf("%+v: %d bytes and %d of the rest are not all", test, out.Len(), len(rest))
		}
		b.Close()
		if s.Memory.Used() != 0 || s.Disk.Used() != 0 {
			t.Errorf("left: %d of memory, %d of disk", s.Memory.Used(), s.Disk.Used())
		}
	}
}

// TestCgroupLimit: the limit is the lowest of a process's cgroup and its parents.
func TestCgroupLimit(t *testing.T) {
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, self string
		files      map[string]string
		want       int64
	}{
		{"a pod", "0::/\n", map[string]string{"memory.max": "1073741824\n"}, 1 << 30},
		{"a service in a slice", "0::/system.slice/llmguard.service\n", map[string]string{
			"system.slice/memory.max": "1000\n", "system.slice/llmguard.service/memory.max": "max\n",
		}, 1000},
		{"no limit", "0::/user.slice\n", map[string]string{"user.slice/memory.max": "max\n"}, 0},
		{"version 1", "5:cpu:/x\n4:memory:/docker/x\n0::/\n", map[string]string{
			"memory/docker/x/memory.limit_in_bytes": "2000\n", "memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 2000},
	} {
		dir := t.TempDir()
		write(dir, "self", test.self)
		for name, text := range test.files {
			write(dir, name, text)
		}
		if got := cgroupLimit(filepath.Join(dir, "self"), dir); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
	if got := cgroupLimit("/nowhere/at/all", "/nowhere"); got != 0 {
		t.Errorf("without /proc: got %d, want 0", got)
	}
}

// TestReplaceKeepsItsRoom: a text that is not longer than what it replaces needs no additional
// room.
func TestReplaceKeepsItsRoom(t *testing.T) {
	s := New(Options{Memory: 1000, Disk: -1})
	b := s.Buffer(t.Context(), "acme", time.Millisecond)
	defer b.Close()
	if err := b.Expect(900); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write(make([]byte, 900)); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() { waits <- s.Memory.Take(t.Context(), "other", 550, time.Minute) }()
	redistest.Eventually(t, "the other waits", func() bool { return s.Memory.Waiting() > 0 })
	if err := b.Replace(make([]byte, 460)); err != nil || b.Size() != 460 {
		t.Errorf("%v, %d bytes; want it replaced", err, b.Size())
	}
	b.Close()
	if err := redistest.Came(t, waits); err != nil || s.Memory.Used() != 550 {
		t.Errorf("the other: %v, %d bytes are used; want 550", err, s.Memory.Used())
	}
}
