package fakeprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Behaviour controls the response to one request. The zero value is a normal response.
type Behaviour struct {
	// The content.
	Output    int64     // tokens of visible text per choice; 0: plausible, -1: none
	Fill      bool      // use up the request's output limit
	Reasoning int64     // reasoning tokens per choice; 0: by model and effort, -1: none
	Cached    int64     // prompt tokens reported as cached; 0: by prefix, -1: none; what is written is then 0
	Text      string    // this text instead of a generated one
	Tools     int       // tool calls when tools are offered; 0: one, -1: none
	Call      string    // a call of this tool, also after results of tools
	Args      string    // JSON arguments of Call instead of generated ones
	Finish    string    // finish_reason instead of the true one
	Model     string    // model named in the response
	Tier      string    // service_tier named in the response
	Usage     UsageMode // what to do with the usage object
	// Iterations are further samplings that an answer of the Messages API reports: "compaction",
	// "advisor_message:MODEL" and "fallback_message:MODEL"; "message" adds none to the report.
	Iterations []string
	Speed, Geo string        // speed and inference_geo named in the response of the Messages API
	RawUsage   string        // JSON sent as the usage object
	Chunk      int           // tokens per streamed chunk; default 1
	Delay      time.Duration // before the headers
	First      time.Duration // before the first token, instead of Cadence.First
	Gap        time.Duration // between chunks, instead of Cadence.Token

	// Error responses.
	Status     int         // respond with this error status
	Type, Code string      // of the error object; default by status
	Message    string      // of the error object; default by status
	Body       string      // "html", "empty", "string", "detail" or "number", or the literal body
	RetryAfter string      // header value
	Header     http.Header // added to the response

	// Faults of the connection and of streams.
	Cut      Cut           // how the response breaks off
	After    int           // chunks before a cut, stall, garbage or long line; 0: half of them
	Stall    time.Duration // one pause in the middle
	Endless  bool          // never stops, whatever the limit
	Garbage  bool          // one event that is not JSON
	Newline  string        // line ending of a stream: "lf" (default), "crlf" or "cr"
	Comments bool          // comments between events
	LongLine int           // bytes of padding in one event
	Raw      string        // sent literally in the middle of a stream
	Repeat   int           // how often Raw is sent; 0: once
	Early    bool          // faults occur before the first event instead of in the middle
	Split    string        // "utf8" or "byte": writes end inside characters
	Gzip     bool          // compress if the request accepts it
	Times    int           // only the first n times this exact body is sent
}

// UsageMode is what to do with the usage object.
type UsageMode string

// The usage modes.
const (
	UsageNone     UsageMode = "none"     // no usage field, no usage chunk
	UsageNull     UsageMode = "null"     // usage: null
	UsageBare     UsageMode = "bare"     // no details objects
	UsageNegative UsageMode = "negative" // all numbers negated
	UsageHuge     UsageMode = "huge"     // 1e30
	UsageString   UsageMode = "string"   // numbers as strings
	UsageFraction UsageMode = "fraction" // 12.5 tokens
	UsageZero     UsageMode = "zero"     // all numbers zero
	UsageEvery    UsageMode = "every"    // cumulative, in every chunk, whether requested or not
)

// Cut is how a response breaks off.
type Cut string

// The cuts. Non-streamed responses support CutHeaders, CutReset and CutAbort.
const (
	CutHeaders Cut = "headers" // connection reset before any byte
	CutReset   Cut = "reset"   // connection reset after After chunks
	CutAbort   Cut = "abort"   // connection closed inside the body
	CutEOF     Cut = "eof"     // clean end after After chunks: no finish_reason, no [DONE]
	CutNoDone  Cut = "nodone"  // everything except [DONE]
	CutError   Cut = "error"   // error frame after After chunks, then the end of the stream
)

// closedSets are the allowed values of directives with a fixed choice.
var closedSets = map[string][]string{
	"usage":   {"none", "null", "bare", "negative", "huge", "string", "fraction", "zero", "every"},
	"cut":     {"headers", "reset", "abort", "eof", "nodone", "error"},
	"newline": {"lf", "crlf", "cr"},
	"split":   {"utf8", "byte"},
}

func (b Behaviour) isZero() bool { return reflect.ValueOf(b).IsZero() }

// healed returns the behavior without its faults, for requests after Times.
func (b Behaviour) healed() Behaviour {
	b.Status = 0
	b.Body = ""
	b.RetryAfter = ""
	b.Header = nil
	b.Cut = ""
	b.Stall = 0
	b.Delay = 0
	b.Endless = false
	b.Garbage = false
	b.LongLine = 0
	b.Raw = ""
	b.Usage = ""
	b.RawUsage = ""
	return b
}

var directive = regexp.MustCompile(`\[fake:([^\]]*)\]`)

// directives returns every "[fake: ...]" in a text.
func directives(text string) []string {
	var found []string
	for _, m := range directive.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// ParseDirectives reads "key=value" words separated by spaces or semicolons,
// as in the X-Fake header and in "[fake: ...]". A word without "=" is a flag.
// Values are URL-decoded ("+" is a space, "%5D" a bracket); durations are Go
// durations. Closed sets are those of [UsageMode] and [Cut].
//
//	output=N|all reasoning=N cached=N text=T tools=N finish=F model=M tier=T
//	call=TOOL args=JSON
//	iterations=A,B speed=S geo=G
//	usage=MODE raw-usage=JSON chunk=N delay=D first=D gap=D
//	status=N type=T code=C message=M body=B retry-after=V header=Name:value
//	cut=CUT after=N stall=D endless garbage newline=crlf|cr comments
//	long=BYTES raw=TEXT repeat=N early split=utf8|byte gzip times=N
//
// An unknown word is an error, which a Server answers with a 400.
func ParseDirectives(text string) (Behaviour, error) {
	var b Behaviour
	err := b.parse(text)
	return b, err
}

func (b *Behaviour) parse(text string) error {
	isSeparator := func(r rune) bool { return r == ' ' || r == ';' || r == '\n' || r == '\t' }
	for _, word := range strings.FieldsFunc(text, isSeparator) {
		name, raw, _ := strings.Cut(word, "=")
		value, err := url.QueryUnescape(raw)
		if err != nil {
			return fmt.Errorf("fake directive %q: %w", word, err)
		}
		if err := b.set(name, value); err != nil {
			return fmt.Errorf("fake directive %q: %w", word, err)
		}
	}
	return nil
}

// set sets the field of one directive.
func (b *Behaviour) set(name, value string) error {
	if name == "output" && value == "all" {
		b.Fill = true
		return nil
	}
	if allowed, closed := closedSets[name]; closed && !slices.Contains(allowed, value) {
		return fmt.Errorf("not one of %s", strings.Join(allowed, ", "))
	}
	if (name == "raw-usage" || name == "args") && !json.Valid([]byte(value)) {
		return fmt.Errorf("not JSON")
	}
	switch field := b.field(name).(type) {
	case *int64:
		return scan(field, value, func(v string) (int64, error) { return strconv.ParseInt(v, 10, 64) })
	case *int:
		return scan(field, value, strconv.Atoi)
	case *time.Duration:
		return scan(field, value, time.ParseDuration)
	case *bool:
		*field = value == "" || value == "true" || value == "1"
	case *string:
		*field = value
	case *UsageMode:
		*field = UsageMode(value)
	case *Cut:
		*field = Cut(value)
	case *[]string:
		*field = strings.Split(value, ",")
	case *http.Header:
		key, v, _ := strings.Cut(value, ":")
		if *field == nil {
			*field = make(http.Header)
		}
		field.Add(key, strings.TrimSpace(v))
	default:
		return fmt.Errorf("unknown word")
	}
	return nil
}

func scan[T any](field *T, value string, parse func(string) (T, error)) error {
	v, err := parse(value)
	if err == nil {
		*field = v
	}
	return err
}

// field returns the field of a directive, or nil if there is none.
func (b *Behaviour) field(name string) any {
	return map[string]any{
		"output": &b.Output, "reasoning": &b.Reasoning, "cached": &b.Cached,
		"text": &b.Text, "tools": &b.Tools, "call": &b.Call, "args": &b.Args, "finish": &b.Finish, "model": &b.Model,
		"tier": &b.Tier, "usage": &b.Usage, "raw-usage": &b.RawUsage,
		"iterations": &b.Iterations, "speed": &b.Speed, "geo": &b.Geo,
		"chunk": &b.Chunk, "delay": &b.Delay, "first": &b.First, "gap": &b.Gap,
		"status": &b.Status, "type": &b.Type, "code": &b.Code, "message": &b.Message,
		"body": &b.Body, "retry-after": &b.RetryAfter, "header": &b.Header,
		"cut": &b.Cut, "after": &b.After, "stall": &b.Stall, "endless": &b.Endless,
		"garbage": &b.Garbage, "newline": &b.Newline, "comments": &b.Comments,
		"raw": &b.Raw, "repeat": &b.Repeat, "early": &b.Early,
		"long": &b.LongLine, "split": &b.Split, "gzip": &b.Gzip, "times": &b.Times,
	}[name]
}
