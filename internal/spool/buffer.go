package spool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// Buffer holds one body or response of an org: in memory, or in a file if it is larger than
// Small. It is written by one goroutine, and can then be read concurrently. Its own errors are
// *FullError and *FileError.
type Buffer struct {
	store    *Store
	ctx      context.Context
	org      string
	patience time.Duration

	length int64 // expected length; -1: unknown
	memory []byte
	held   int64 // bytes taken from Store.Memory
	file   *os.File
	size   int64  // of the file's contents
	disk   int64  // bytes taken from Store.Disk
	stay   bool   // stays in memory, because no file can be created
	rest   []byte // what was read when there was no room
}

// Buffer returns an empty Buffer. It waits for room up to patience each time, and must be
// closed.
func (s *Store) Buffer(ctx context.Context, org string, patience time.Duration) Buffer {
	return Buffer{store: s, ctx: ctx, org: org, patience: patience, length: -1, stay: s.noFiles}
}

const (
	firstStep = 16 << 10 // memory taken at first if the length is unknown
	diskStep  = 4 << 20  // disk space taken at a time in that case
)

// Expect takes the room for what will be written; length is -1 if unknown.
func (b *Buffer) Expect(length int64) error {
	b.length = length
	if length < 0 {
		return nil
	}
	if length > Small && b.open() {
		return b.takeDisk(length)
	}
	if err := b.takeMemory(length); err != nil {
		return err
	}
	b.memory = make([]byte, 0, length+1)
	return nil
}

// Fill reads r to its end.
func (b *Buffer) Fill(r io.Reader) error {
	if b.length < 0 || b.file != nil {
		return b.copy(r)
	}
	whole := b.memory[:b.length+1] // one more byte, to see the end, which frees a connection
	n, err := io.ReadFull(r, whole)
	if int64(n) == b.length && errors.Is(err, io.ErrUnexpectedEOF) || b.length == 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	b.memory = whole[:n]
	return err
}

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// copy is io.Copy that keeps what it has read if there is no room.
func (b *Buffer) copy(r io.Reader) error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := r.Read(*buf)
		if n > 0 {
			if m, err := b.Write((*buf)[:n]); err != nil {
				b.rest = bytes.Clone((*buf)[m:n])
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	need := b.Size() + int64(len(p))
	if b.file == nil && need > Small && !b.stay {
		if err := b.spill(); err != nil {
			return 0, err
		}
	}
	if b.file == nil {
		if err := b.grow(need); err != nil {
			return 0, err
		}
		b.memory = append(b.memory, p...)
		return len(p), nil
	}
	if need > b.disk {
		if err := b.takeDisk(max(need-b.disk, diskStep)); err != nil {
			return 0, err
		}
	}
	n, err := b.file.Write(p)
	b.size += int64(n)
	if err != nil {
		return n, &FileError{err}
	}
	return n, nil
}

// grow makes room in memory for need bytes.
func (b *Buffer) grow(need int64) error {
	if need <= int64(cap(b.memory)) {
		return nil
	}
	size := max(need, min(2*int64(cap(b.memory)), need+Small), firstStep)
	if err := b.takeMemory(size - b.held); err != nil {
		return err
	}
	grown := make([]byte, len(b.memory), size)
	copy(grown, b.memory)
	b.memory = grown
	return nil
}

// spill moves the contents from memory to a file, if one can be created.
func (b *Buffer) spill() error {
	if err := b.takeDisk(diskStep); err != nil {
		return err
	}
	if !b.open() {
		b.DropFile()
		return nil
	}
	n, err := b.file.Write(b.memory)
	if err != nil {
		b.DropFile()
		return &FileError{err}
	}
	b.size = int64(n)
	b.DropMemory()
	return nil
}

// open reports whether there is a file, and tries to create one.
func (b *Buffer) open() bool {
	if b.file == nil && !b.stay {
		b.file = b.store.file()
		b.stay = b.file == nil
	}
	return b.file != nil
}

func (b *Buffer) takeMemory(n int64) error {
	if err := b.store.Memory.Take(b.ctx, b.org, n, b.patience); err != nil {
		return err
	}
	b.held += n
	return nil
}

func (b *Buffer) takeDisk(n int64) error {
	if err := b.store.Disk.Take(b.ctx, b.org, n, b.patience); err != nil {
		return err
	}
	b.disk += n
	return nil
}

// Size returns the number of bytes written.
func (b *Buffer) Size() int64 {
	if b.file != nil {
		return b.size
	}
	return int64(len(b.memory))
}

// Bytes returns everything that was written, in memory. The result must not be used after
// DropMemory and Close.
func (b *Buffer) Bytes() ([]byte, error) { return b.bytes(b.size) }

// Priced is Bytes, and also takes the memory for pricing a request, until Shrink.
func (b *Buffer) Priced() ([]byte, error) { return b.bytes(b.store.Pricing(b.size)) }

// Shrink returns memory taken in excess of the contents.
func (b *Buffer) Shrink() {
	if more := b.held - int64(len(b.memory)); more > 0 {
		b.store.Memory.Give(b.org, more)
		b.held -= more
	}
}

func (b *Buffer) bytes(room int64) ([]byte, error) {
	if b.file == nil || b.memory != nil {
		return b.memory, nil
	}
	if err := b.takeMemory(room); err != nil {
		return nil, err
	}
	whole := make([]byte, b.size)
	if _, err := b.file.ReadAt(whole, 0); err != nil {
		return nil, &FileError{err}
	}
	b.memory = whole
	return whole, nil
}

// ReadAt implements io.ReaderAt.
func (b *Buffer) ReadAt(p []byte, at int64) (int, error) {
	if b.file != nil {
		n, err := b.file.ReadAt(p, at)
		if err != nil && !errors.Is(err, io.EOF) {
			err = &FileError{err}
		}
		return n, err
	}
	if at >= int64(len(b.memory)) {
		return 0, io.EOF
	}
	n := copy(p, b.memory[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteTo implements io.WriterTo. The contents of a file are written in pieces. After a Fill
// that found no room, it writes what had been read.
func (b *Buffer) WriteTo(w io.Writer) (total int64, err error) {
	if b.file == nil {
		n, err := w.Write(b.memory)
		total = int64(n)
		if err != nil {
			return total, err
		}
	} else {
		total, err = b.writeFile(w)
		if err != nil {
			return total, err
		}
	}
	if len(b.rest) > 0 {
		var n int
		n, err = w.Write(b.rest)
		total += int64(n)
	}
	return total, err
}

func (b *Buffer) writeFile(w io.Writer) (int64, error) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	from := struct{ io.Reader }{io.NewSectionReader(b, 0, b.size)}
	return io.CopyBuffer(struct{ io.Writer }{w}, from, *buf)
}

// Replace replaces the contents by text, which is not copied unless it goes to a file.
func (b *Buffer) Replace(text []byte) error {
	n := int64(len(text))
	if n <= b.held && (n <= Small || b.stay) { // reuse the present room, because others may be waiting for more
		b.DropFile()
		b.store.Memory.Give(b.org, b.held-n)
		b.memory, b.held = text, n
		return nil
	}
	b.Close()
	if int64(len(text)) > Small && !b.stay {
		if _, err := b.Write(text); err != nil || b.file != nil {
			return err
		}
		b.Close()
	}
	if err := b.takeMemory(int64(len(text))); err != nil {
		return err
	}
	b.memory = text
	return nil
}

// Unload frees the memory if the contents are also in a file.
func (b *Buffer) Unload() {
	if b.file != nil {
		b.DropMemory()
	}
}

// DropMemory frees the contents in memory, which are lost unless there is a file.
func (b *Buffer) DropMemory() {
	if b.held > 0 {
		b.store.Memory.Give(b.org, b.held)
	}
	b.memory, b.held = nil, 0
}

// DropFile deletes the file; its contents are lost unless Bytes was called.
func (b *Buffer) DropFile() {
	if b.file != nil {
		_ = b.file.Close()
	}
	if b.disk > 0 {
		b.store.Disk.Give(b.org, b.disk)
	}
	b.file = nil
	b.size = 0
	b.disk = 0
	b.rest = nil
}

// Close frees everything. Closing a zero Buffer is allowed.
func (b *Buffer) Close() {
	b.DropMemory()
	b.DropFile()
}
