package batch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// lineReader reads the lines of an input file from a position on.
type lineReader struct {
	body io.ReadCloser
	buf  *bufio.Reader
	at   position
	most int // bytes of a line
	line []byte
}

const readAhead = 64 << 10

func openLines(ctx context.Context, s *files.Store, f *files.File, from position, most int) (*lineReader, error) {
	body, err := s.Open(ctx, f, from.off)
	if err != nil {
		return nil, err
	}
	return &lineReader{body: body, buf: bufio.NewReaderSize(body, readAhead), at: from, most: most}, nil
}

func (r *lineReader) Close() error { return r.body.Close() }

// next returns the next line that is not blank, without its line ending. It is valid until
// the following call. A line that is too long is truncated and returned with errLong. At
// the end the error is io.EOF.
func (r *lineReader) next() ([]byte, error) {
	for {
		line, err := r.read()
		if err != nil || !blank(line) {
			return line, err
		}
	}
}

func blank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }

var errLong = errors.New("the line is too long")

func (r *lineReader) read() ([]byte, error) {
	r.line = r.line[:0]
	long := false
	for {
		part, err := r.buf.ReadSlice('\n')
		r.at.off += int64(len(part))
		long = long || len(r.line)+len(part) > r.most
		if !long {
			r.line = append(r.line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || len(r.line) == 0 && !long) {
			return nil, err
		}
		break
	}
	r.at.line++
	if r.at.line == 1 { // Windows programs begin a file with a byte order mark
		r.line = bytes.TrimPrefix(r.line, []byte("\xEF\xBB\xBF"))
	}
	if long {
		return r.line, errLong
	}
	return bytes.TrimRight(r.line, "\r\n"), nil
}

// request is one line of an input file.
type request struct {
	line     int
	customID string
	url      string
	model    string
	body     []byte // as in the file
	parsed   *wire.Request
}

// maxCustomID bounds a custom_id, in bytes.
const maxCustomID = 512

// parse parses a line for an endpoint, or for any if ep is empty. The problem has no line
// number yet.
func parse(line []byte, ep wire.Endpoint, limits wire.Limits) (request, *Problem) {
	var r request
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil || members == nil {
		return r, problem("invalid_json_line", "", "This line is not parseable as a JSON object.")
	}
	for _, m := range []struct {
		name string
		into any
	}{{"custom_id", &r.customID}, {"method", new(string)}, {"url", &r.url}} {
		text, ok := members[m.name]
		if !ok {
			return r, problem("missing_required_parameter", m.name, "Missing required parameter: '"+m.name+"'.")
		}
		if err := json.Unmarshal(text, m.into); err != nil || string(text) == "null" {
			return r, problem("invalid_type", m.name, "'"+m.name+"' must be a string.")
		}
		if m.name == "method" && *m.into.(*string) != "POST" {
			return r, problem("invalid_method", m.name, "The method must be POST.")
		}
	}
	if r.customID == "" || len(r.customID) > maxCustomID {
		return r, problem("invalid_value", "custom_id", fmt.Sprintf("'custom_id' must have 1 to %d bytes.", maxCustomID))
	}
	got, ok := EndpointOf(r.url)
	switch {
	case ep == "" && !ok:
		return r, problem("invalid_value", "url", fmt.Sprintf("The url must be one of %s, not %.100q.", Paths(), r.url))
	case ep != "" && got != ep:
		return r, problem("url_mismatch", "url", "The url of every line must be the endpoint of the batch, /v1"+ep.Path()+".")
	}
	r.body = members["body"]
	if len(r.body) == 0 || r.body[0] != '{' {
		return r, problem("missing_required_parameter", "body", "'body' must be a JSON object: the request.")
	}
	var err error
	r.parsed, err = wire.Scan(got, r.body, limits)
	if err != nil {
		return r, problemOf(err, "invalid_request")
	}
	r.model = r.parsed.Model
	return r, unbatched(r.parsed)
}

// unbatched returns the problem of a request that no batch can have.
func unbatched(r *wire.Request) *Problem {
	switch {
	case r.Stream:
		return problem("invalid_value", "body.stream", "Lines of a batch cannot be streamed. Remove stream.")
	case r.Speed == "fast":
		return problem("invalid_value", "body.speed", "Lines of a batch cannot use fast mode. Remove speed.")
	case r.Endpoint == wire.Messages && r.OutputLimit == 0:
		return problem("invalid_value", "body.max_tokens", "Lines of a batch need max_tokens of at least 1.")
	}
	return nil
}

func problem(code, param, message string) *Problem {
	p := &Problem{Code: code, Message: message}
	if param != "" {
		p.Param = &param
	}
	return p
}

// problemOf words an error of wire or guard. code is used for errors without one.
func problemOf(err error, code string) *Problem {
	var public *wire.Error
	if !errors.As(err, &public) {
		return problem(code, "", "The request is not valid.")
	}
	if public.Code != "" {
		code = public.Code
	}
	param := "body"
	if public.Param != "" {
		param += "." + public.Param
	}
	return problem(code, param, public.Message)
}
