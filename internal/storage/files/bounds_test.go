package files

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestBounds: bytes and files are limited per org and per user, and the error says which limit
// was reached. The output of batches is always written, and counts.
func TestBounds(t *testing.T) {
	bob, carol := Owner{"acme", "bob"}, Owner{"acme", "carol"}
	for _, test := range []struct {
		options Options
		want    FullError
		who     Owner // refused after ann and bob have stored a file of 5 bytes each
	}{
		{Options{OrgBytes: 14}, FullError{Most: 14}, carol},
		{Options{UserBytes: 9}, FullError{Most: 9, User: true}, bob},
		{Options{OrgFiles: 2}, FullError{Most: 2, Files: true}, carol},
		{Options{UserFiles: 1}, FullError{Most: 1, User: true, Files: true}, bob},
	} {
		t.Run(test.want.Error(), func(t *testing.T) {
			srv := redistest.Start(t)
			s := newStore(t, srv, t.TempDir(), test.options)
			must(t, s, ann, Batch, "12345")
			f := must(t, s, bob, Batch, "12345")
			var full *FullError
			if _, err := put(t, s, test.who, Batch, "12345"); !errors.As(err, &full) || *full != test.want {
				t.Fatalf("got %v, want %v", err, &test.want)
			}
			must(t, s, Owner{"other", "ann"}, Batch, "12345")
			out := must(t, s, test.who, BatchOutput, "12345")
			if err := s.Room(t.Context(), test.who); !errors.As(err, &full) || *full != test.want {
				t.Errorf("room: %v, want %v", err, &test.want)
			}
			for _, gone := range []*File{f, out} {
				if err := s.Remove(t.Context(), gone.Owner, gone.ID); err != nil {
					t.Fatal(err)
				}
			}
			must(t, s, test.who, Batch, "12345")
		})
	}
}

// TestKeptBytesCount: the bytes of a deleted file count until they are removed, so creating
// batches from files and deleting these does not exceed an org's limit.
func TestKeptBytesCount(t *testing.T) {
	s := newStore(t, redistest.Start(t), t.TempDir(), Options{OrgBytes: 9, OrgFiles: 1})
	f := must(t, s, ann, Batch, "12345")
	if err := s.Keep(t.Context(), f, time.Now().Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), ann, f.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.File(t.Context(), ann, f.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted file is there: %v", err)
	}
	if err := s.Keep(t.Context(), f, time.Now().Add(time.Hour)); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted file is kept: %v", err)
	}
	if list, _, err := s.List(t.Context(), ann, Filter{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("%v: a deleted file is listed: %v", err, list)
	}
	if _, err := put(t, s, ann, Batch, "12345"); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want a refusal while the bytes stay", err)
	}
	later := time.Now().Add(49 * time.Hour)
	s.clock = fmt.Sprint(later.UnixMicro())
	if err := s.sweep(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	must(t, s, ann, Batch, "12345")
}

// TestRefusedUploadsLeaveNothing: discarded and refused uploads leave nothing in Redis, however
// many there are.
func TestRefusedUploadsLeaveNothing(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv, t.TempDir(), Options{OrgBytes: 3})
	up, err := s.Begin(t.Context(), ann, NewID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(up, "12"); err != nil {
		t.Fatal(err)
	}
	up.Discard(t.Context())
	if _, err := put(t, s, ann, Batch, "12345"); !errors.Is(err, ErrFull) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if keys, err := srv.Client().Keys(t.Context(), "lg:*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("%v: left %v, want nothing", err, keys)
	}
}

// TestOlderFilesAreTakenOver: files that an older version counted per org only can be read and
// removed, and removing them keeps the other sums correct.
func TestOlderFilesAreTakenOver(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv, t.TempDir(), Options{OrgBytes: 10, UserBytes: 10, OrgFiles: 2})
	old := must(t, s, ann, Batch, "12345")
	rdb := srv.Client()
	for _, err := range []error{
		rdb.HDel(t.Context(), recordKey("acme", old.ID), "summed").Err(),
		rdb.HDel(t.Context(), sizesKey("acme"), "files", "bytes:ann").Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(t, s, ann, Batch, "12345")
	if text := read(t, s, old, 0); text != "12345" {
		t.Errorf("read %q", text)
	}
	if err := s.Remove(t.Context(), ann, old.ID); err != nil {
		t.Fatal(err)
	}
	sums, err := rdb.HGetAll(t.Context(), sizesKey("acme")).Result()
	if got := fmt.Sprint(sums); err != nil || got != "map[bytes:5 bytes:ann:5 files:1]" {
		t.Errorf("%v: sums %s, want 5 bytes in 1 file", err, got)
	}
	if read(t, s, old, 0) != "(gone)" {
		t.Error("a removed file is there")
	}
}

// TestRecordsKeepToTheShareOfTheirOrg: the records of one org's files in Redis leave space for
// another's, and deleting a file frees its bytes.
func TestRecordsKeepToTheShareOfTheirOrg(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client()
	s := newStore(t, srv, t.TempDir(), Options{Memory: capacity.New(redistest.DB(rdb), nil, capacity.Options{}, nil)})
	var used int64
	if _, err := fmt.Sscan(rdb.InfoMap(t.Context(), "memory").Val()["Memory"]["used_memory"], &used); err != nil {
		t.Fatal(err)
	}
	const room, most = 2 << 20, 4000
	if err := rdb.ConfigSet(t.Context(), "maxmemory", fmt.Sprint((used+room)*100/80)).Err(); err != nil {
		t.Fatal(err)
	}
	var last *File
	var full *capacity.FullError
	for range most {
		f, err := put(t, s, ann, Batch, "{}")
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = f
	}
	if full == nil || !full.Org {
		t.Fatalf("got %v, want a refusal for the org's share", full)
	}
	must(t, s, ann, BatchOutput, "paid for")
	must(t, s, Owner{"other", "bob"}, Batch, "{}")
	counted := func() string { return rdb.HGet(t.Context(), "lg:{capacity}:sums", "o acme").Val() }
	before := counted()
	if err := s.Remove(t.Context(), ann, last.ID); err != nil {
		t.Fatal(err)
	}
	if after := counted(); after == before {
		t.Errorf("%s bytes are counted before and after a file is deleted", before)
	}
}
