package wire

import (
	"cmp"
	"maps"
	"slices"
)

// Endpoint names an operation of the API that costs money, in limits, scopes of keys, metrics and the
// ledger. The zero value is none.
type Endpoint string

// Traits are the row of an endpoint: everything about it that is not tokens or prices. Routes, scopes,
// batches, the cache, sizes of answers and bounds of costs follow from it. Every row stands in the file
// that reads its requests.
type Traits struct {
	// Path is the path below the base URL, with a leading slash. Aliases are further paths, without
	// /v1, at which callers find it.
	Path    string
	Aliases []string
	// Form means that requests are multipart/form-data, see [ScanForm]. They cannot wait in the queue.
	Form bool
	// Makes is what answers consist of.
	Makes Product
	// Free means that providers charge nothing. If Priceable is set too, a price for a model counts.
	Free, Priceable bool
	// Batched means that the lines of batches may use it, and Foreign that OpenAI does not have it, so
	// that OpenAI's Batch API cannot run the lines.
	Batched, Foreign bool
	// Reusable means that an answer may serve for an identical request: it is text or numbers, and
	// does not expire.
	Reusable bool
	// Dialogue means that the request is a list of messages, each of which adds tokens of its own.
	Dialogue bool
	// Shows means that a plain answer is JSON that contains the text a model generated.
	Shows bool
	// Chunks means that a stream ends with [DONE], and contains usage if stream_options asks for it.
	Chunks bool
	// Numbered means that the events of a stream have numbers.
	Numbered bool
	// Responses means that it belongs to the Responses API, which some providers do not have.
	Responses bool
	// Messages means that it belongs to Anthropic's Messages API, whose answers, streams and errors have another
	// form than OpenAI's.
	Messages bool
	// OutputField is the only name of the output limit; "" if it depends on the provider.
	OutputField string
	// DefaultOutput is the output limit, in tokens, of a request without one; 0 if there is none.
	DefaultOutput int64
	// PerInput means that every input has choices of its own.
	PerInput bool
	// AnswerBytes estimates the largest answer; nil if it is text of the output's length.
	AnswerBytes func(*Request) int64
	// Operation is OpenTelemetry's name for it, "" for its own.
	Operation string

	fields   *fields              // members of a JSON request
	file     string               // the part that a form needs
	defaults func(*Request) bool  // sets the model of a request that names none, false if there is no default
	complete func(*scanner) error // checks what is known only after the whole request was read
	stored   bool                 // the default of store
	content  []string             // the members of an answer for which the endpoint is called
	event    func(data, dst []byte) (Chunk, error)
	// generated reads the generated text of an answer, and written what of it is certainly output.
	generated func(answer []byte) (Generated, bool)
	written   func(answer []byte) ([]byte, bool)
}

// Product is what the answers of an endpoint consist of.
type Product uint8

// The products of endpoints.
const (
	Numbers     Product = iota // vectors, scores, counts: only input is billed
	Texts                      // choices, or the items of a response
	Pictures                   // generated pictures
	Sound                      // spoken text
	Transcripts                // what a recording says
)

// table has the rows, by name. It is complete when the package's variables have their values, and
// never changes after that.
var table = map[Endpoint]*Traits{}

// aliases are the paths of the rows by their aliases.
var aliases = map[string]string{}

// endpoint adds a row.
func endpoint(name Endpoint, t Traits) Endpoint {
	table[name] = &t
	for _, alias := range t.Aliases {
		aliases[alias] = t.Path
	}
	return name
}

// noTraits are those of a name without a row.
var noTraits = Traits{content: []string{"data"}}

// Traits returns the row of the endpoint, a zero row if it has none. It must not be modified.
func (e Endpoint) Traits() *Traits {
	if t := table[e]; t != nil {
		return t
	}
	return &noTraits
}

// Wire returns the endpoint of conversations to whose API e belongs.
func (e Endpoint) Wire() Endpoint {
	switch t := e.Traits(); {
	case t.Messages:
		return Messages
	case t.Responses:
		return Responses
	}
	return ChatCompletions
}

// Path returns the endpoint's path below the base URL, with a leading slash, or "" for an unknown
// endpoint.
func (e Endpoint) Path() string { return e.Traits().Path }

// Members returns the names of the members that a JSON request of the endpoint can have, sorted.
func (e Endpoint) Members() []string {
	if e.Traits().fields == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(e.Traits().fields.read))
}

// Canonical returns the path of the endpoint of which a path is an alias, so that limits and records know one;
// else the path itself. Both are without /v1.
func Canonical(path string) string {
	return cmp.Or(aliases[path], path)
}

// Created reports whether ep creates pictures, speech or transcripts.
func (e Endpoint) Created() bool { return e.Traits().Makes >= Pictures }

// Endpoints lists the endpoints that cost money, in the order of their paths.
func Endpoints() []Endpoint {
	return slices.SortedFunc(maps.Keys(table), func(a, b Endpoint) int { return cmp.Compare(a.Path(), b.Path()) })
}
