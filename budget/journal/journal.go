// Package journal keeps a small number of records on disk until they are deleted: data that must
// survive the death of this process and cannot be written to its destination right now.
//
// A record is on disk and synced when [Journal.PutAll] returns nil; concurrent writers share one
// sync. A record that a crash left half written fails its checksum and is skipped; it was never
// acknowledged. When no record is left the file is emptied. Files are readable by their owner only
// and are not encrypted.
//
// Each process has its own file in a shared directory, locked while the process runs. Files of dead
// processes are taken over by the next process that opens the directory.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

var (
	// ErrFull means that the records would take more than Options.MaxBytes.
	ErrFull = errors.New("journal: full")
	// ErrClosed means that the journal is closed.
	ErrClosed = errors.New("journal: closed")
)

// Options tune a Journal. The zero value is usable.
type Options struct {
	// MaxBytes bounds the records kept, in bytes; default 64 MiB. The file may take up to twice as
	// much, and so does memory while it is read.
	MaxBytes int64
	Log      *slog.Logger // nil: discarded
}

// Record is a record and its id.
type Record struct {
	ID   string
	Data []byte // not to be modified
}

// Journal is a set of records by id. It is safe for concurrent use.
type Journal struct {
	dir  string // empty: in memory only
	opts Options
	sync func(*os.File) error // replaced in tests

	mu      sync.Mutex
	file    *os.File
	name    string // of the file; the handle may have an older one
	size    int64
	broken  bool // a write to the file failed: rewrite it before the next one
	live    map[string]*entry
	bytes   int64 // of live records, as written
	seq     int64
	batch   *batch
	writing bool // a goroutine runs commit
	closed  bool
	idle    *sync.Cond
}

// entry is a record with its sequence number.
type entry struct {
	seq  int64
	data []byte
}

// batch is what the next sync covers.
type batch struct {
	text []byte
	ops  []op
	done chan struct{} // closed when it is on disk or has failed with err
	err  error
}

// op puts data under an id or deletes the id.
type op struct {
	id     string
	data   []byte
	delete bool
}

// Open creates or adopts a file in dir, which is created if needed, and takes over the records that
// dead processes left. If dir is empty, the records are in memory only and end with the process.
func Open(dir string, o Options) (*Journal, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	j := &Journal{
		dir: dir, opts: o, sync: (*os.File).Sync, live: map[string]*entry{},
		batch: &batch{done: make(chan struct{})},
	}
	j.idle = sync.NewCond(&j.mu)
	if dir == "" {
		return j, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := j.adopt(); err != nil {
		if j.file != nil {
			j.file.Close()
		}
		return nil, err
	}
	return j, nil
}

// Durable reports whether records survive the process.
func (j *Journal) Durable() bool { return j.dir != "" }

// PutAll stores records under their ids, replacing what was there, and returns when they are on
// disk, after one sync. After an error, including ctx's own, they may or may not be stored: Delete
// them then. ErrFull stores none of them.
func (j *Journal) PutAll(ctx context.Context, records []Record) error {
	size := int64(0)
	for _, r := range records {
		if len(r.ID) > maxID || len(r.Data) > maxData {
			return fmt.Errorf("journal: a record of %d bytes under an id of %d is too large", len(r.Data), len(r.ID))
		}
		size += int64(recordSize(r.ID, r.Data))
	}
	if size == 0 {
		return nil
	}
	b, err := j.enter(records, size)
	if err != nil {
		return err
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return fmt.Errorf("journal: %w", context.Cause(ctx))
	}
}

// enter adds records to the next batch if there is space.
func (j *Journal) enter(records []Record, size int64) (*batch, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, ErrClosed
	}
	if j.bytes+int64(len(j.batch.text))+size > j.opts.MaxBytes {
		return nil, ErrFull
	}
	var b *batch
	for _, r := range records {
		b = j.add(op{id: r.ID, data: slices.Clone(r.Data)})
	}
	return b, nil
}

// Delete removes the record immediately, and soon on disk too. A crash before that restores it.
func (j *Journal) Delete(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		o := op{id: id, delete: true}
		j.apply(o)
		j.add(o)
	}
}

// add adds an operation to the batch; j.mu is held.
func (j *Journal) add(o op) *batch {
	b := j.batch
	b.ops = append(b.ops, o)
	if j.dir != "" {
		b.text = appendRecord(b.text, o)
	}
	if !j.writing {
		j.writing = true
		go j.commit()
	}
	return b
}

// commit writes batches until none is left, with one write and one sync each.
func (j *Journal) commit() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.batch.ops) > 0 {
		b := j.batch
		j.batch = &batch{done: make(chan struct{})}
		b.err = j.write(b)
		if b.err == nil {
			for _, o := range b.ops {
				j.apply(o)
			}
		} else {
			j.opts.Log.Error("journal write failed", "err", b.err)
		}
		close(b.done)
		j.empty()
	}
	j.writing = false
	j.idle.Broadcast()
}

// apply updates the set of records; j.mu is held.
func (j *Journal) apply(o op) {
	old := j.live[o.id]
	if old != nil {
		j.bytes -= int64(recordSize(o.id, old.data))
		delete(j.live, o.id)
	}
	if o.delete {
		return
	}
	j.seq++
	e := &entry{seq: j.seq, data: o.data}
	if old != nil {
		e.seq = old.seq
	}
	j.live[o.id] = e
	j.bytes += int64(recordSize(o.id, o.data))
}

// write writes a batch to disk. j.mu is held, but released during the write; only commit touches
// the file.
func (j *Journal) write(b *batch) error {
	if j.dir == "" {
		return nil
	}
	if j.broken || j.size+int64(len(b.text)) > 2*j.opts.MaxBytes {
		if err := j.rewrite(); err != nil {
			j.broken = true
			return err
		}
	}
	file, at := j.file, j.size
	j.mu.Unlock()
	_, err := file.WriteAt(b.text, at)
	if err == nil {
		err = j.sync(file)
	}
	j.mu.Lock()
	if err != nil {
		j.broken = true // after a failed sync the content of the file is unknown
		return fmt.Errorf("journal: %w", err)
	}
	j.size += int64(len(b.text))
	return nil
}

// empty truncates the file when no record is left; j.mu is held. It is harmless if a crash undoes
// that.
func (j *Journal) empty() {
	if len(j.live) > 0 || len(j.batch.ops) > 0 || j.size == 0 || j.broken {
		return
	}
	if err := j.file.Truncate(0); err != nil {
		j.broken = true
		return
	}
	j.size = 0
	if err := j.sync(j.file); err != nil {
		j.broken = true
	}
}

// rewrite replaces the file with one that has only the remaining records; j.mu is held.
func (j *Journal) rewrite() error {
	var text []byte
	for _, r := range j.records() {
		text = appendRecord(text, op{id: r.ID, data: r.Data})
	}
	next, err := create(j.name + ".new")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err == nil {
		err = j.sync(next)
	}
	if err == nil {
		err = os.Rename(next.Name(), j.name)
	}
	if err != nil {
		next.Close()
		_ = os.Remove(next.Name())
		return fmt.Errorf("journal: rewrite: %w", err)
	}
	j.file.Close()
	j.file, j.size, j.broken = next, int64(len(text)), false
	return syncDir(j.dir)
}

// Records returns the stored records in the order in which they were first put.
func (j *Journal) Records() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records()
}

func (j *Journal) records() []Record {
	out := make([]Record, 0, len(j.live))
	for id, e := range j.live {
		out = append(out, Record{id, e.data})
	}
	slices.SortFunc(out, func(a, b Record) int { return int(j.live[a.ID].seq - j.live[b.ID].seq) })
	return out
}

// Size returns the number of stored records and their size in bytes.
func (j *Journal) Size() (records int, bytes int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.live), j.bytes
}

// Close waits for pending writes and releases the file. An empty file is removed; one with records
// is left for the next process.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.writing {
		j.idle.Wait()
	}
	if j.closed || j.file == nil {
		j.closed = true
		return nil
	}
	j.closed = true
	if len(j.live) == 0 {
		_ = os.Remove(j.name)
	}
	return j.file.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
