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

// An encrypted stream is a head followed by chunks. The head consists of streamMagic, the
// length and the id of a key of the ring, and a salt from which the stream's own AES key is
// derived, so that streams never share nonces. A chunk is chunkSize bytes (the last one may be
// shorter), encrypted with its number and whether it is the last one as the nonce, and the head
// and the place as additional data. So chunks cannot be moved, omitted or truncated undetected.
const (
	chunkSize = 64 << 10
	tagSize   = 16
	saltSize  = 32
	// MaxHead is the maximum length of the head of an encrypted stream, in bytes.
	MaxHead = 4 + 1 + 32 + saltSize
)

// streamMagic is the prefix of every encrypted stream. Text never starts with NUL.
var streamMagic = []byte("\x00lgs")

// StreamWriter encrypts what is written to it, 64 KiB at a time, in constant memory. It is not
// safe for concurrent use.
type StreamWriter struct {
	w     io.Writer
	aead  cipher.AEAD
	extra []byte
	next  uint64
	plain []byte
	out   []byte
	err   error
}

// NewWriter starts an encrypted stream on w, which can be opened only with the same place. The
// ring must not be nil. Close ends the stream; without it the stream reads as broken.
func (r *Ring) NewWriter(w io.Writer, place ...string) (*StreamWriter, error) {
	head := append(append(append([]byte(nil), streamMagic...), byte(len(r.first))), r.first...)
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails: the runtime would abort the process
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

// Write appends bytes. An error of the underlying writer is permanent.
func (s *StreamWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && s.err == nil {
		if len(s.plain) == chunkSize { // a full chunk may be the last one, so wait for the next byte
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

// Stream is the parsed head of an encrypted stream. It is immutable and safe for concurrent
// use.
type Stream struct {
	aead  cipher.AEAD
	extra []byte
	size  int64 // length of the head
}

// OpenStream parses the head of an encrypted stream. begin is its first MaxHead bytes, or all
// of it if it is shorter. It returns nil for data that was never encrypted, which may be older
// than the ring; ErrNoKey and ErrBroken are as in Open.
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

// chunkOf returns the number of the first chunk to read for an offset. At a boundary it is the
// previous chunk, since there may be none after it.
func chunkOf(offset int64) int64 { return max(offset-1, 0) / chunkSize }

// At returns the position in the encrypted stream from which to read for an offset of the plain
// text. The offset is in bytes, at least 0.
func (s *Stream) At(offset int64) int64 { return s.size + chunkOf(offset)*(chunkSize+tagSize) }

// Reader returns the plain text from an offset. sealed is the encrypted stream from At(offset)
// on. Reading returns ErrBroken where the stream was modified or truncated; what was read
// before is genuine. The reader is not safe for concurrent use.
func (s *Stream) Reader(sealed io.Reader, offset int64) io.Reader {
	first := chunkOf(offset)
	return &streamReader{s: s, r: sealed, next: uint64(first), skip: int(offset - first*chunkSize)}
}

type streamReader struct {
	s     *Stream
	r     io.Reader
	next  uint64
	skip  int    // bytes of the first chunk to skip
	buf   []byte // an encrypted chunk and the next byte, which shows that it is not the last one
	plain []byte // decrypted in place, not yet returned
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

// fill decrypts the next chunk.
func (r *streamReader) fill() {
	const full = chunkSize + tagSize
	have := 0
	if r.buf == nil {
		r.buf = make([]byte, full+1)
	} else {
		r.buf[0], have = r.buf[full], 1
	}
	var err error
	for n := 0; have < len(r.buf) && err == nil; have += n { // io.ReadFull hides broken connections
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
