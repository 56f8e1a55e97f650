package tokenizer

import "unicode/utf8"

// Stream counts text that arrives in pieces, such as the deltas of an answer, split anywhere, even
// inside a character. At any moment Count equals the package function Count for all the text
// written so far.
//
// It keeps only the part of the text whose tokens may change with later text: a word, or all of a
// run without a split point. A Stream is not safe for concurrent use; create it with NewStream.
type Stream struct {
	enc    Encoding
	codec  *codec // nil for encodings left to tiktoken-go
	broken bool   // no tables: count bytes

	closed int    // tokens of text that later text cannot change
	tail   []byte // valid UTF-8 after it, from the start of a piece
	looked int    // length of tail when it was last split
	whole  int    // tokens of tail, or -1 if not known

	part  [utf8.UTFMax]byte // start of a character split by the end of a write
	parts int
}

// NewStream returns an empty stream under enc.
func NewStream(enc Encoding) *Stream {
	c, err := codecOf(enc)
	return &Stream{enc: enc, codec: c, broken: err != nil}
}

// Write appends p to the text. It keeps no reference to p.
func (s *Stream) Write(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.broken {
		s.closed += len(p)
		return
	}
	s.whole = -1
	if s.parts == 0 && utf8.Valid(p) {
		s.tail = append(s.tail, p...)
	} else {
		s.mend(p)
	}
	if len(s.tail) >= s.looked+s.looked/2+16 {
		s.close()
	}
}

// mend appends p to the tail, with invalid bytes as U+FFFD, together with the split character
// before it, and keeps the one split by its end.
func (s *Stream) mend(p []byte) {
	for s.parts > 0 && len(p) > 0 {
		s.part[s.parts] = p[0]
		s.parts, p = s.parts+1, p[1:]
		for s.parts > 0 && utf8.FullRune(s.part[:s.parts]) {
			r, size := utf8.DecodeRune(s.part[:s.parts])
			s.tail = utf8.AppendRune(s.tail, r)
			s.parts = copy(s.part[:], s.part[size:s.parts])
		}
	}
	for len(p) > 0 && utf8.FullRune(p) {
		r, size := utf8.DecodeRune(p)
		s.tail = utf8.AppendRune(s.tail, r)
		p = p[size:]
	}
	s.parts += copy(s.part[s.parts:], p)
}

// close counts and drops the pieces at the start of the tail that can no longer change.
func (s *Stream) close() {
	i := 0
	if s.codec != nil {
		sc := s.codec.scratch()
		for i < len(s.tail) {
			e, open := s.codec.next(s.tail, i)
			if open {
				break
			}
			s.closed += s.codec.piece(s.tail, i, e, sc)
			i = e
		}
		s.codec.release(sc)
	} else {
		for end := chunkEnd(s.tail); end < len(s.tail)-i; end = chunkEnd(s.tail[i:]) {
			s.closed += legacyCount(s.enc, s.tail[i:i+end])
			i += end
		}
	}
	s.tail = s.tail[:copy(s.tail, s.tail[i:])]
	s.looked = len(s.tail)
}

// Count returns the exact number of tokens so far. Its cost grows with the text that is still open,
// so do not call it after every delta: Upper is free.
func (s *Stream) Count() int {
	if s.whole < 0 {
		s.close()
		valid := s.tail
		for range s.parts {
			valid = utf8.AppendRune(valid, utf8.RuneError)
		}
		s.whole = Count(s.enc, valid)
		s.tail = valid[:len(s.tail)]
	}
	return s.closed + s.whole
}

// Upper returns a number of tokens that Count does not exceed, at no cost.
func (s *Stream) Upper() int {
	return s.closed + len(s.tail) + len("\uFFFD")*s.parts
}
