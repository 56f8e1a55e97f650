package wire

import (
	"slices"
	"strconv"
)

// Background responses are created by a provider that uses another id and does not know that they
// are in the background. What it sends is rewritten here, with as few changed bytes as possible.

// Renamed returns a response, as JSON, with another id and with "background" true. Input that is
// not a JSON object is returned unchanged.
func Renamed(response []byte, id string) []byte {
	l := lenient(response)
	list, err := renames(&l, id)
	if err != nil {
		return response
	}
	return spliced(response, list)
}

// renames lists the changes to the response at pos.
func renames(l *lexer, id string) ([]splice, error) {
	var list []splice
	err := l.object(func(name []byte) error {
		v, err := l.value()
		switch string(name) {
		case "id":
			list = append(list, splice{v, appendQuoted(nil, id)})
		case "background":
			list = append(list, splice{v, []byte("true")})
		}
		return err
	})
	return list, err
}

func spliced(data []byte, list []splice) []byte {
	slices.SortStableFunc(list, func(a, b splice) int { return a.at.Start - b.at.Start })
	out := make([]byte, 0, len(data)+64)
	from := 0
	for _, s := range list {
		out = append(append(out, data[from:s.at.Start]...), s.text...)
		from = s.at.End
	}
	return append(out, data[from:]...)
}

// Event is one event of a Responses stream.
type Event struct {
	Kind     string
	Sequence int64
	// Response is the raw response in the event, or nil; Item is the raw item.
	Response, Item []byte

	data     []byte
	sequence Span
	changes  []splice
}

// ParseEvent parses the data of an event that will be sent for the response id.
func ParseEvent(data []byte, id string) (Event, error) {
	e := Event{data: data}
	l := lenient(data)
	err := l.object(func(name []byte) error {
		start, first := l.pos, l.peek()
		if string(name) == "response" && first == '{' {
			list, err := renames(&l, id)
			e.changes, e.Response = list, data[start:l.pos]
			return err
		}
		v, err := l.value()
		switch {
		case string(name) == "type" && first == '"':
			e.Kind = string(appendUnquoted(nil, data[v.Start+1:v.End-1]))
		case string(name) == "sequence_number":
			e.sequence = v
			e.Sequence, _ = strconv.ParseInt(string(data[v.Start:v.End]), 10, 64)
		case string(name) == "item":
			e.Item = data[v.Start:v.End]
		}
		return err
	})
	return e, err
}

// Final reports whether this is the last event.
func (e Event) Final() bool {
	switch e.Kind {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled", "error":
		return true
	}
	return false
}

// Append appends the event with another sequence number to dst.
func (e Event) Append(dst []byte, sequence int64) []byte {
	list := e.changes
	if !e.sequence.IsZero() {
		list = append(slices.Clip(list), splice{e.sequence, strconv.AppendInt(nil, sequence, 10)})
	}
	dst = append(append(append(dst, "event: "...), e.Kind...), "\ndata: "...)
	return append(append(dst, spliced(e.data, list)...), "\n\n"...)
}

// FinalResponse returns the response at the end of a recorded stream, nil if it did not get that
// far.
func FinalResponse(stream []byte) []byte {
	var events Events
	for from := 0; from < len(stream); {
		n := min(len(stream)-from, 1<<20)
		if events.Feed(stream[from:from+n]) != nil {
			return nil
		}
		from += n
		for {
			event, ok := events.Next()
			if !ok {
				break
			}
			if e, err := ParseEvent(EventData(event), ""); err == nil && e.Final() && e.Response != nil {
				return slices.Clone(e.Response)
			}
		}
	}
	return nil
}

// Pending returns the response to a request before anything of it is known, as JSON: it echoes the
// request. made is a Unix time in seconds, status is "queued", "in_progress", "cancelled" or
// "failed"; failed requires a failure.
func Pending(request []byte, id, status string, made int64, failure *Error) []byte {
	dst := append([]byte(`{"id":`), appendQuoted(nil, id)...)
	dst = append(dst, `,"object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, made, 10)
	dst = append(append(append(dst, `,"status":"`...), status...), `","background":true,"error":`...)
	if failure == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(dst, `{"code":`...), appendQuoted(nil, failure.Code)...)
		dst = append(append(append(dst, `,"message":`...), appendQuoted(nil, failure.Message)...), '}')
	}
	dst = AppendEcho(dst, request)
	return append(dst, `,"incomplete_details":null,"output":[],"usage":null}`...)
}

// echoed are the members of a request that its response repeats, with their default values.
var echoed = [][2]string{
	{"instructions", "null"},
	{"max_output_tokens", "null"},
	{"max_tool_calls", "null"},
	{"metadata", "{}"},
	{"model", `""`},
	{"parallel_tool_calls", "true"},
	{"previous_response_id", "null"},
	{"reasoning", `{"effort":null,"summary":null}`},
	{"service_tier", `"auto"`},
	{"store", "true"},
	{"temperature", "1"},
	{"text", `{"format":{"type":"text"}}`},
	{"tool_choice", `"auto"`},
	{"tools", "[]"},
	{"top_p", "1"},
	{"truncation", `"disabled"`},
	{"user", "null"},
}
