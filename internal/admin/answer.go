package admin

import (
	"bufio"
	stdjson "encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// created is a response with status 201.
type created struct{ body any }

// empty is a response with status 204.
type empty struct{}

// partial is an error response that includes what was done before the error.
type partial struct {
	plan *Plan
	err  error
}

func (c *call) answer(v any) {
	status := http.StatusOK
	switch a := v.(type) {
	case created:
		status, v = http.StatusCreated, a.body
	case empty:
		c.status = http.StatusNoContent
		c.w.WriteHeader(c.status)
		return
	case stdjson.RawMessage:
		c.write(status, a)
		return
	case attachment:
		c.attach(a)
		return
	case streamed:
		c.stream(a, false)
		return
	case followed:
		c.stream(streamed(a), true)
		return
	case partial:
		e := public(a.err)
		c.log.Error("changes to an org interrupted", "id", c.id, "done", len(a.plan.Changes), "err", a.err)
		status, v = e.Status, struct {
			Error stdjson.RawMessage `json:"error"`
			*Plan
		}{e.Object(), a.plan}
	}
	body, err := settings.Marshal(v)
	if err != nil {
		c.fail(err)
		return
	}
	c.write(status, append(body, '\n'))
}

func (c *call) fail(err error) {
	e := public(err)
	if e.Status >= http.StatusInternalServerError {
		c.log.Error("admin request failed", "id", c.id, "err", err)
	}
	c.rules.Advise(c.w.Header(), e)
	c.write(e.Status, append(e.JSON(), '\n'))
}

func (c *call) write(status int, body []byte) {
	c.status = status
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body)
}

// streamed is a response of JSON lines, written as they are read. An error after the first line
// is sent as the last one: {"error": {...}}.
type streamed func(line func(any) error) error

// errGone reports that the client stopped reading a stream.
var errGone = errors.New("admin: the reader of a stream is gone")

// followed is streamed with every line flushed.
type followed streamed

func (c *call) stream(read streamed, each bool) {
	c.status = http.StatusOK
	c.w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(c.w, 1<<16)
	enc := stdjson.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err := read(func(v any) error {
		err := enc.Encode(v)
		if err == nil && each {
			err = out.Flush()
			c.flush()
		}
		if err != nil {
			return errors.Join(errGone, err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errGone) {
		c.log.Error("admin stream interrupted", "id", c.id, "err", err)
		_, _ = out.Write(append(public(err).JSON(), '\n'))
	}
	_ = out.Flush() // if the client is gone, it cannot read an error either
}

func (c *call) flush() { _ = http.NewResponseController(c.w).Flush() }

// page is the response of a list.
type page[T any] struct {
	Object string `json:"object"` // always "list"
	Data   []T    `json:"data"`
}

func byName[T any](of map[string]T) iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(of)))
}

// views returns the list of what view makes of each.
func views[S, T any](of iter.Seq[S], view func(S) T) page[T] {
	var data []T
	for one := range of {
		data = append(data, view(one))
	}
	return listOf(data)
}

func listOf[T any](data []T) page[T] {
	if data == nil {
		data = []T{}
	}
	return page[T]{Object: "list", Data: data}
}
