package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
)

// maxRequestID bounds a custom_id in Anthropic's form, in characters.
const maxRequestID = 64

// requestReader reads a body of Anthropic's form, {"requests": [{"custom_id", "params"}]}, one request at a time.
type requestReader struct {
	dec  *json.Decoder
	from io.Reader
	got  int64
	most int64 // bytes of one request
	err  error // of from, or errLong
}

// Read implements io.Reader for the decoder.
func (r *requestReader) Read(p []byte) (n int, err error) {
	if r.got-r.dec.InputOffset() > r.most {
		r.err = errLong
		return 0, errLong
	}
	n, err = r.from.Read(p)
	r.got += int64(n)
	if !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// WriteRequests reads the body of a request that creates a batch in Anthropic's form, and writes its requests to w
// as lines of an input file, of at most maxLine bytes each. It returns how many there are. A body that breaks a
// rule is a *wire.Error; other errors come from body and w.
func (s *Store) WriteRequests(w io.Writer, body io.Reader, maxLine int, limits wire.Limits) (lines int, err error) {
	r := &requestReader{from: body, most: int64(maxLine)}
	r.dec = json.NewDecoder(r)
	r.dec.DisallowUnknownFields()
	if err := r.expect(json.Delim('{'), "requests", json.Delim('[')); err != nil {
		return 0, err
	}
	seen, model := make(map[[16]byte]int), ""
	for ; r.dec.More(); lines++ {
		if lines == s.maxLines() {
			return 0, wire.BadRequest("requests", "too_many_tasks", "requests: at most %d are allowed (batches.max_lines)",
				lines)
		}
		line, err := r.line(fmt.Sprintf("requests.%d", lines))
		if err != nil {
			return 0, err
		}
		req, wrong := parse(line, wire.Messages, limits)
		if lines == 0 {
			model = req.model
		}
		if wrong == nil {
			wrong = once(seen, req.customID, lines+1)
		}
		if wrong == nil {
			wrong = sameModel(model, req.model)
		}
		if wrong != nil {
			return 0, wrong.ofRequest(lines)
		}
		if _, err := w.Write(line); err != nil {
			return 0, err
		}
	}
	err = r.expect(json.Delim(']'), json.Delim('}'))
	if lines == 0 && err == nil {
		err = wire.BadRequest("requests", "missing_required_parameter", "requests: at least one is required")
	}
	return lines, err
}

func (r *requestReader) expect(tokens ...json.Token) error {
	for _, want := range tokens {
		got, err := r.dec.Token()
		if err != nil || got != want {
			return r.wrong("", "The body must be a JSON object with the member requests, an array, and no other")
		}
	}
	return nil
}

// wrong returns the error of the body, or else one that says how it must be.
func (r *requestReader) wrong(param, text string) error {
	if errors.Is(r.err, errLong) {
		return wire.BadRequest(param, "line_too_large", "A request of the batch can have at most %d bytes", r.most)
	}
	if r.err != nil {
		return r.err
	}
	return wire.BadRequest(param, "invalid_json", "%s", text)
}

// line reads a request and returns it as a line of an input file.
func (r *requestReader) line(param string) ([]byte, error) {
	var one struct {
		CustomID string          `json:"custom_id"`
		Params   json.RawMessage `json:"params"`
	}
	if err := r.dec.Decode(&one); err != nil {
		return nil, r.wrong(param, param+": must be an object with custom_id, a string, and params, and no other members")
	}
	if len(one.CustomID) > maxRequestID || !wire.PlainID(one.CustomID) {
		return nil, wire.BadRequest(param+".custom_id", "invalid_value",
			"%s.custom_id: must have 1 to %d letters, digits, - or _", param, maxRequestID)
	}
	var line bytes.Buffer
	fmt.Fprintf(&line, `{"custom_id":"%s","method":"POST","url":"/v1%s","body":`, one.CustomID, wire.Messages.Path())
	if len(one.Params) == 0 {
		one.Params = json.RawMessage("null")
	}
	err := json.Compact(&line, one.Params) // a line has no line breaks
	line.WriteString("}\n")
	if int64(line.Len()) > r.most {
		r.err = errLong
		return nil, r.wrong(param, "")
	}
	return line.Bytes(), err
}

// ofRequest returns the problem of a line as the problem of request n, counted from 0, in Anthropic's form.
func (p *Problem) ofRequest(n int) *wire.Error {
	param := fmt.Sprintf("requests.%d", n)
	if p.Param != nil {
		param += "." + strings.Replace(*p.Param, "body", "params", 1)
	}
	return wire.BadRequest(param, p.Code, "%s: %s", param, strings.Replace(p.Message, "'body'", "'params'", 1))
}
