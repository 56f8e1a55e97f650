package listen

import (
	"bytes"
	"math"
	"strconv"
)

// framing follows the HTTP/1 messages of a connection, and detects those that another server
// may delimit differently. net/http accepts a Transfer-Encoding and drops the Content-Length
// next to it, joins folded lines, and accepts a bare line feed as a line end. A proxy in front
// that decides differently could be made to pass on a second request hidden in the body of the
// first.
type framing struct {
	part   part
	line   []byte // beginning of the line, at most lineKept bytes
	tail   []byte // end of the line
	length int    // of the current line

	version string // of the request
	lengths int    // number of Content-Length fields in the head
	chunked int    // number of Transfer-Encoding fields
	left    uint64 // remaining bytes of the body or chunk
}

// part is the part of a message that the next byte belongs to.
type part uint8

const (
	beforeMessage part = iota
	requestLine
	headerLine
	bodyBytes
	chunkSize
	chunkBytes
	chunkEnd
	trailerLine
)

const (
	// lineKept is enough for the relevant fields; a longer one is rejected.
	lineKept = 64
	tailKept = len("HTTP/1.1\r\n")
)

// scan processes further bytes. If a message is ambiguous, it returns how many bytes before it
// may be delivered, and false; after that the framing must not be used.
func (f *framing) scan(p []byte) (good int, ok bool) {
	for good < len(p) {
		n, ok := f.step(p[good:])
		if !ok {
			return good, false
		}
		good += n
	}
	return good, true
}

// step processes bytes of one part, possibly not all of it.
func (f *framing) step(p []byte) (n int, ok bool) {
	switch f.part {
	case beforeMessage:
		if p[0] == '\r' || p[0] == '\n' { // some clients send a line break after a body
			return 1, true
		}
		f.part = requestLine
		f.lengths = 0
		f.chunked = 0
		f.left = 0
	case bodyBytes, chunkBytes:
		return f.skip(p), true
	}
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		f.keep(p)
		return len(p), true
	}
	f.keep(p[:end+1])
	ok = bytes.HasSuffix(f.tail, []byte("\r\n")) && f.endOfLine()
	f.line = f.line[:0]
	f.tail = f.tail[:0]
	f.length = 0
	return end + 1, ok
}

// skip skips content.
func (f *framing) skip(p []byte) int {
	n := int(min(f.left, uint64(len(p)))) //nolint:gosec // at most len(p)
	f.left -= uint64(n)
	if f.left == 0 && f.part == bodyBytes {
		f.part = beforeMessage
	} else if f.left == 0 {
		f.part = chunkEnd
	}
	return n
}

// keep stores the beginning and the end of a line.
func (f *framing) keep(p []byte) {
	f.length += len(p)
	f.line = append(f.line, p[:min(len(p), lineKept-len(f.line))]...)
	f.tail = append(f.tail, p[max(0, len(p)-tailKept):]...)
	f.tail = f.tail[max(0, len(f.tail)-tailKept):]
}

// endOfLine processes a complete line, and reports whether it is unambiguous.
func (f *framing) endOfLine() bool {
	text := bytes.TrimSuffix(f.line, []byte("\r\n"))
	switch f.part {
	case requestLine:
		f.version, f.part = string(bytes.TrimSuffix(f.tail, []byte("\r\n"))), headerLine
		return true
	case headerLine:
		if f.length == len("\r\n") {
			return f.endOfHead()
		}
		return f.field(text)
	case chunkSize:
		return f.size(text)
	case chunkEnd:
		f.part = chunkSize
		return f.length == len("\r\n")
	default: // trailerLine
		if f.length == len("\r\n") {
			f.part = beforeMessage
		}
		return !folded(text)
	}
}

// folded reports whether a line continues the previous one.
func folded(line []byte) bool { return len(line) > 0 && (line[0] == ' ' || line[0] == '\t') }

// field processes the header fields that determine where a body ends.
func (f *framing) field(line []byte) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.Trim(value, " \t")
	switch {
	case folded(line):
		return false
	case bytes.EqualFold(name, []byte("Content-Length")):
		n, err := strconv.ParseUint(string(value), 10, 63)
		f.left, f.lengths = n, f.lengths+1
		return err == nil && f.lengths == 1 && f.length <= lineKept
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		f.chunked++
		return bytes.EqualFold(value, []byte("chunked")) && f.chunked == 1 && f.length <= lineKept
	}
	return true
}

// endOfHead determines what kind of body follows.
func (f *framing) endOfHead() bool {
	switch {
	case f.chunked > 0:
		f.part = chunkSize
		return f.lengths == 0 && f.version == "HTTP/1.1"
	case f.left > 0:
		f.part = bodyBytes
	default:
		f.part = beforeMessage
	}
	return true
}

// size parses the line before a chunk.
func (f *framing) size(line []byte) bool {
	digits, _, extended := bytes.Cut(line, []byte(";"))
	if !extended && f.length > lineKept {
		return false
	}
	n, err := strconv.ParseUint(string(digits), 16, 64)
	f.left, f.part = n, chunkBytes
	if n == 0 {
		f.part = trailerLine
	}
	return err == nil && n <= math.MaxInt64
}
