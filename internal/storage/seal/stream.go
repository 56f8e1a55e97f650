package seal

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A sealed stream is a head and chunks. The head is streamMagic, the length and
// the id of a key of the ring, and a salt from which the stream's own AES key is
// derived, so that no two streams share nonces however many there are. A chunk is
// chunkSize bytes, the last one up to as many, sealed with its number and whether
// it is the last one as the nonce, and the head and the place as additional data:
// chunks cannot be moved, left out or cut off unnoticed.
const (
	chunkSize = 64 << 10
	tagSize   = 16
	saltSize  = 32
	// MaxHead is the most bytes that the head of a sealed stream has.
	MaxHead = 4 + 1 + 32 + saltSize
)

// streamMagic begins every sealed stream. Text never begins with NUL.
var streamMagic = []byte("\x00lgs")

// StreamWriter seals what is written to it, 64 KiB at a time, in constant memory.
// It is for one goroutine.
type StreamWriter struct {
	w     io.Writer
	aead  cipher.AEAD
	extra []byte
	next  uint64
	plain []byte
	out   []byte
	err   error
}

// NewWriter begins a sealed stream on w, which opens only with the same place.
// The ring must not be nil. Close ends the stream; without it, the stream reads
// as broken.
func (r *Ring) NewWriter(w io.Writer, place ...string) (*StreamWriter, error) {
	head := append(append(append([]byte(nil), streamMagic...), byte(len(r.first))), r.first...)
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails: the runtime aborts the process instead
	head = append(head, salt...)
	aead, err := streamAEAD(r.keys[r.first].stream, salt)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	return &StreamWriter{
		w: w, aead: aead, extra: bind(head, place),
		plain: make([]byte, 0, chunkSize), out: make([]byte, 0, chunkSize+tagSize),
	}, nil
}

// Write adds bytes. Errors are those of the underlying writer, and stay.
func (s *StreamWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && s.err == nil {
		if len(s.plain) == chunkSize { // a full chunk may be the last one, so it waits for the next byte
			s.flush(false)
			continue
		}
		k := min(len(p), chunkSize-len(s.plain))
		s.plain = append(s.plain, p[:k]...)
		n, p = n+k, p[k:]
	}
	return n, s.err
}

// Close writes the last chunk. It does not close the underlying writer.
func (s *StreamWriter) Close() error {
	if s.err == nil {
		s.flush(true)
	}
	return s.err
}

func (s *StreamWriter) flush(last bool) {
	s.out = s.aead.Seal(s.out[:0], chunkNonce(s.next, last), s.plain, s.extra)
	s.next++
	s.plain = s.plain[:0]
	_, s.err = s.w.Write(s.out)
}

// Stream is what the head of a sealed stream says. It is immutable and safe for
// concurrent use.
type Stream struct {
	aead  cipher.AEAD
	extra []byte
	size  int64 // of the head
}

// OpenStream reads the head of a sealed stream. begin is its first MaxHead bytes,
// or all of it where it is shorter. It returns nil for what was never sealed,
// which may be older than the ring; ErrNoKey and ErrBroken are as in Open.
func (r *Ring) OpenStream(begin []byte, place ...string) (*Stream, error) {
	rest, sealed := bytes.CutPrefix(begin, streamMagic)
	if !sealed {
		return nil, nil
	}
	if len(rest) == 0 || len(rest) < 1+int(rest[0])+saltSize {
		return nil, ErrBroken
	}
	id, salt := string(rest[1:1+rest[0]]), rest[1+rest[0]:][:saltSize]
	if r == nil || !r.has(id) {
		return nil, fmt.Errorf("%w: %q", ErrNoKey, id)
	}
	head := begin[:len(streamMagic)+1+len(id)+saltSize]
	aead, err := streamAEAD(r.keys[id].stream, salt)
	if err != nil {
		return nil, err
	}
	return &Stream{aead: aead, extra: bind(head, place), size: int64(len(head))}, nil
}

// chunkOf is the number of the chunk to begin with for an offset. At a boundary
// it is the chunk before, since there may be no other behind it.
func chunkOf(offset int64) int64 { return max(offset-1, 0) / chunkSize }

// At tells where in the sealed stream to read on from for an offset of the plain
// text, in bytes, at least 0.
func (s *Stream) At(offset int64) int64 { return s.size + chunkOf(offset)*(chunkSize+tagSize) }

// Reader returns the plain text from an offset on. sealed is the rest of the sealed
// stream from At(offset) on. Reading gives ErrBroken where it was changed or cut;
// what was read until then is genuine. The reader is for one goroutine.
func (s *Stream) Reader(sealed io.Reader, offset int64) io.Reader {
	first := chunkOf(offset)
	return &streamReader{s: s, r: sealed, next: uint64(first), skip: int(offset - first*chunkSize)}
}

type streamReader struct {
	s     *Stream
	r     io.Reader
	next  uint64
	skip  int    // bytes of the first chunk
	buf   []byte // a sealed chunk and the byte behind it, which tells that it is not the last one
	plain []byte // opened in place, not given out yet
	err   error
}

func (r *streamReader) Read(p []byte) (int, error) {
	for len(r.plain) == 0 && r.err == nil {
		r.fill()
	}
	n := copy(p, r.plain)
	r.plain = r.plain[n:]
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}

// fill opens the next chunk.
func (r *streamReader) fill() {
	const full = chunkSize + tagSize
	have := 0
	if r.buf == nil {
		r.buf = make([]byte, full+1)
	} else {
		r.buf[0], have = r.buf[full], 1
	}
	var err error
	for n := 0; have < len(r.buf) && err == nil; have += n { // io.ReadFull would not tell an end from a connection cut off
		n, err = r.r.Read(r.buf[have:])
	}
	last := have < len(r.buf)
	if last && !errors.Is(err, io.EOF) {
		r.err = err
		return
	}
	chunk := r.buf[:min(have, full)]
	plain, err := r.s.aead.Open(chunk[:0], chunkNonce(r.next, last), chunk, r.s.extra)
	if err != nil {
		r.err = ErrBroken
		return
	}
	r.next++
	if last {
		r.err = io.EOF
	}
	skip := min(r.skip, len(plain))
	r.plain, r.skip = plain[skip:], r.skip-skip
}

func chunkNonce(number uint64, last bool) []byte {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce[3:], number)
	if last {
		nonce[11] = 1
	}
	return nonce
}

func streamAEAD(root, salt []byte) (cipher.AEAD, error) {
	raw, err := hkdf.Key(sha256.New, root, salt, "llmguard seal stream", 32)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return newGCM(raw)
}
