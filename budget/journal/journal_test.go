package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/internal/redistest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LLMGUARD_JOURNAL_CHILD"); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, dir string, o Options) *Journal {
	t.Helper()
	j, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func put(t *testing.T, j *Journal, id, data string) {
	t.Helper()
	if err := j.Put(t.Context(), id, []byte(data)); err != nil {
		t.Fatalf("put %s: %v", id, err)
	}
}

// wait waits until everything is on disk.
func (j *Journal) wait(t *testing.T) {
	redistest.Wait(t, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		for j.writing {
			j.idle.Wait()
		}
	})
}

func contents(j *Journal) map[string]string {
	out := map[string]string{}
	for _, r := range j.Records() {
		out[r.ID] = string(r.Data)
	}
	return out
}

func wants(t *testing.T, j *Journal, want map[string]string) {
	t.Helper()
	if got := contents(j); !maps.Equal(got, want) {
		t.Fatalf("kept %v, want %v", got, want)
	}
}

// TestOpenAgain: after Close, what was put is there, in order, and what was deleted is not.
func TestOpenAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	j := open(t, dir, Options{})
	for i := range 20 {
		put(t, j, fmt.Sprint("id", i), fmt.Sprint("one ", i))
	}
	put(t, j, "id3", "two")
	j.Delete("id0")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, Options{})
	records := j.Records()
	if len(records) != 19 || records[0].ID != "id1" || records[2].ID != "id3" || string(records[2].Data) != "two" {
		t.Errorf("kept %v", records)
	}
	if n, size := j.Size(); n != 19 || size <= 0 {
		t.Errorf("size %d, %d bytes", n, size)
	}
	info, err := os.Stat(j.name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for i := range 20 {
		j.Delete(fmt.Sprint("id", i))
	}
	j.wait(t)
	if info, err := os.Stat(j.name); err != nil || info.Size() != 0 {
		t.Errorf("the file of no record: %v, %v", info, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 0 {
		t.Errorf("left %v", names)
	}
	if err := j.Put(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("put after close: %v", err)
	}
}

// TestTornAtEveryByte: wherever a crash cuts the file, what was put before the cut is kept, the
// rest is skipped with a warning, and the file stays in use.
func TestTornAtEveryByte(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	states, ends := []map[string]string{{}}, []int64{0}
	step := func() {
		states, ends = append(states, contents(j)), append(ends, j.size)
	}
	for i := range 4 {
		put(t, j, fmt.Sprint("id", i), strings.Repeat("LGj1x", i*3)) // looks like the start of a record
		step()
	}
	put(t, j, "id2", "again")
	step()
	j.Delete("id1")
	j.wait(t)
	step()
	whole, err := os.ReadFile(j.name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "settles-0.journal"), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		torn := open(t, dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		last := 0
		for i, end := range ends {
			if end <= int64(cut) {
				last = i
			}
		}
		wants(t, torn, states[last])
		if said := strings.Contains(log.String(), "skipped"); said != (ends[last] != int64(cut)) {
			t.Fatalf("cut at %d: said %v: %s", cut, said, &log)
		}
		put(t, torn, "new", "after")
		if err := torn.Close(); err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(states[last])
		want["new"] = "after"
		again := open(t, dir, Options{})
		wants(t, again, want)
		_ = again.Close()
	}
}

// TestDamageInTheMiddle: a corrupted byte costs its own record and no other.
func TestDamageInTheMiddle(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	var starts []int64
	for i := range 3 {
		starts = append(starts, j.size)
		put(t, j, fmt.Sprint("id", i), "some data")
	}
	whole, err := os.ReadFile(j.name)
	if err != nil {
		t.Fatal(err)
	}
	for at := starts[1]; at < starts[2]; at++ {
		text := bytes.Clone(whole)
		text[at] ^= 0x40
		ops, skipped := parse(text)
		if len(ops) != 2 || ops[0].id != "id0" || ops[1].id != "id2" || skipped != int(starts[2]-starts[1]) {
			t.Fatalf("byte %d: %d records, %d bytes skipped", at, len(ops), skipped)
		}
	}
}

// TestOneSyncForMany: writers that arrive during a sync share the next one.
func TestOneSyncForMany(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	var syncs atomic.Int64
	hold, began := make(chan struct{}), make(chan struct{}, 100)
	j.sync = func(f *os.File) error {
		syncs.Add(1)
		began <- struct{}{}
		redistest.Came(t, hold)
		return f.Sync()
	}
	var wg sync.WaitGroup
	wg.Go(func() { put(t, j, "first", "x") })
	redistest.Came(t, began)
	for i := range 50 {
		wg.Go(func() { put(t, j, fmt.Sprint(i), "x") })
	}
	for {
		j.mu.Lock()
		n := len(j.batch.ops)
		j.mu.Unlock()
		if n == 50 {
			break
		}
	}
	if n := len(contents(j)); n != 0 {
		t.Errorf("%d records count as kept before the disk has them", n)
	}
	close(hold)
	redistest.Wait(t, wg.Wait)
	if n := syncs.Load(); n != 2 {
		t.Errorf("%d syncs for 51 records, want 2", n)
	}
}

// TestDiskFails: a disk failure loses nothing that was acknowledged, and the disk is used again
// once it works.
func TestDiskFails(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	put(t, j, "kept", "x")
	before, _ := os.Stat(j.name)
	bad := errors.New("no space")
	j.sync = func(*os.File) error { return bad }
	for range 3 {
		if err := j.Put(t.Context(), "lost", []byte("y")); !errors.Is(err, bad) {
			t.Fatalf("put: %v", err)
		}
	}
	wants(t, j, map[string]string{"kept": "x"})
	j.sync = (*os.File).Sync
	put(t, j, "later", "z")
	if after, err := os.Stat(j.name); err != nil || os.SameFile(before, after) {
		t.Errorf("a file whose sync failed is trusted: %v", err)
	}
	_ = j.Close()
	wants(t, open(t, dir, Options{}), map[string]string{"kept": "x", "later": "z"})
}

// TestImpatient: a Put whose caller has gone may have been written; Delete undoes it.
func TestImpatient(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	j.sync = func(f *os.File) error { cancel(); redistest.Came(t, hold); return f.Sync() }
	if err := j.Put(ctx, "a", nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("put: %v", err)
	}
	j.Delete("a")
	close(hold)
	put(t, j, "b", "")
	wants(t, j, map[string]string{"b": ""})
}

// TestBounds: the size of the records is bounded, and so is that of the file, however often they
// change.
func TestBounds(t *testing.T) {
	const most = 10_000
	dir := t.TempDir()
	j := open(t, dir, Options{MaxBytes: most})
	put(t, j, "stays", "x")
	for i := range 200 {
		id := fmt.Sprint(i)
		put(t, j, id, strings.Repeat("d", 900))
		j.Delete(id)
		j.mu.Lock()
		size := j.size
		j.mu.Unlock()
		if size > 2*most+2000 {
			t.Fatalf("the file has %d bytes", size)
		}
	}
	var err error
	n := 0
	for ; err == nil; n++ {
		err = j.Put(t.Context(), fmt.Sprint("full", n), make([]byte, 900))
	}
	if !errors.Is(err, ErrFull) || n < 9 || n > 12 {
		t.Errorf("after %d records: %v", n, err)
	}
	if err := j.Put(t.Context(), "large", make([]byte, maxData+1)); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("too large a record: %v", err)
	}
}

// TestOneDirectory: processes in one directory have a file each; the next process takes over the
// files of dead ones.
func TestOneDirectory(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, Options{}), open(t, dir, Options{})
	put(t, a, "a", "1")
	put(t, b, "b", "2")
	if a.name == b.name {
		t.Fatalf("both write to %s", a.name)
	}
	idle := open(t, dir, Options{})
	wants(t, idle, map[string]string{})
	_ = idle.Close()
	_ = a.Close()
	_ = b.Close()
	c := open(t, dir, Options{})
	wants(t, c, map[string]string{"a": "1", "b": "2"})
	d := open(t, dir, Options{})
	wants(t, d, map[string]string{})
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 2 {
		t.Errorf("files %v", names)
	}
}

// TestStaleHandle: a lock on a file that another process has replaced or removed is not valid,
// because its records have moved.
func TestStaleHandle(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	for _, change := range []func(){
		func() { j.mu.Lock(); defer j.mu.Unlock(); _ = j.rewrite() },
		func() { _ = j.Close() },
	} {
		f, err := os.OpenFile(j.name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		change()
		if err := own(f); !errors.Is(err, errTaken) {
			t.Errorf("a stale handle can be owned: %v", err)
		}
		_ = f.Close()
	}
}

func TestOpenMany(t *testing.T) {
	dir := t.TempDir()
	for round := range 20 {
		old := open(t, dir, Options{})
		put(t, old, "r", fmt.Sprint(round))
		_ = old.Close()
		var wg sync.WaitGroup
		var have atomic.Int64
		all := make([]*Journal, 8)
		for i := range all {
			wg.Go(func() {
				j, err := Open(dir, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = j
				have.Add(int64(len(j.Records())))
			})
		}
		redistest.Wait(t, wg.Wait)
		if n := have.Load(); n != 1 {
			t.Errorf("round %d: %d processes have the record", round, n)
		}
		for _, j := range all {
			if j != nil {
				j.Delete("r")
				_ = j.Close()
			}
		}
	}
}

func TestInMemory(t *testing.T) {
	j := open(t, "", Options{MaxBytes: 1000})
	put(t, j, "a", "1")
	put(t, j, "b", "2")
	j.Delete("a")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	wants(t, j, map[string]string{"b": "2"})
	if j.Durable() {
		t.Error("memory is called durable")
	}
}
