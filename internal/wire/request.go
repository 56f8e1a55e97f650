package wire

import (
	"bytes"
	"slices"
)

// Endpoint names one of the API's operations. The zero value is none.
type Endpoint string

// The endpoints whose bytes this package knows.
const (
	ChatCompletions  Endpoint = "chat.completions"
	Embeddings       Endpoint = "embeddings"
	Responses        Endpoint = "responses"
	ResponsesCompact Endpoint = "responses.compact"
	ResponsesTokens  Endpoint = "responses.input_tokens"
	Completions      Endpoint = "completions"
	Moderations      Endpoint = "moderations"

	ImageGenerations Endpoint = "images.generations"
	ImageEdits       Endpoint = "images.edits"
	ImageVariations  Endpoint = "images.variations"
	Speech           Endpoint = "audio.speech"
	Transcriptions   Endpoint = "audio.transcriptions"
	Translations     Endpoint = "audio.translations"
)

// paths are the endpoints' paths below the base URL.
var paths = map[Endpoint]string{
	ChatCompletions: "/chat/completions", Embeddings: "/embeddings", Completions: "/completions",
	Moderations: "/moderations",
	Responses:   "/responses", ResponsesCompact: "/responses/compact", ResponsesTokens: "/responses/input_tokens",
	ImageGenerations: "/images/generations", ImageEdits: "/images/edits", ImageVariations: "/images/variations",
	Speech: "/audio/speech", Transcriptions: "/audio/transcriptions", Translations: "/audio/translations",
}

// Path returns the endpoint's path below the base URL, with a leading slash,
// or "" for an endpoint we do not know.
func (e Endpoint) Path() string { return paths[e] }

// Free reports whether providers charge nothing for the endpoint, unless they say
// what a model costs there.
func (e Endpoint) Free() bool { return e == Moderations || e == ResponsesTokens }

// Span is a half-open range of byte offsets into a [Request]'s Body. The zero
// Span means that the value is absent.
type Span struct{ Start, End int }

// IsZero reports whether the value is absent.
func (s Span) IsZero() bool { return s == Span{} }

// Len returns the number of bytes in s.
func (s Span) Len() int { return s.End - s.Start }

// Limits bounds what [Scan] is willing to read.
type Limits struct {
	// MaxDepth is the deepest nesting of objects and arrays. 0 means 1,000.
	MaxDepth int
	// MaxTokens is the number of names and values in the document. 0 means
	// 200,000. Token ids in an embeddings input do not count: they cost us no
	// memory.
	MaxTokens int

	model string // that of the path, for ScanFor
}

const (
	defaultMaxDepth  = 1_000
	defaultMaxTokens = 200_000
)

func (l Limits) withDefaults() Limits {
	if l.MaxDepth <= 0 {
		l.MaxDepth = defaultMaxDepth
	}
	if l.MaxTokens <= 0 {
		l.MaxTokens = defaultMaxTokens
	}
	return l
}

// Request is what [Scan] found in a request body: everything that decides its
// cost, and nothing else. A JSON null counts as absent. Spans and Texts point
// into Body. A Request is never changed after Scan and may be read by any
// number of goroutines, as long as nobody writes to Body.
type Request struct {
	Endpoint Endpoint
	// Body is the request as received.
	Body []byte

	// Model is empty only where a stored prompt among the Refs names it. Implied says that the
	// request does not name it: it is the
	// API's default or the prompt's, and has to be written into what is sent.
	Model   string
	Implied bool
	// Stream is the body's "stream".
	Stream bool
	// IncludeUsage is the body's "stream_options.include_usage".
	IncludeUsage bool
	// OutputLimit is the most output tokens per choice, 1 to 2^31-1, or -1
	// when the request gives none.
	OutputLimit int64
	// OutputField is the member that gave OutputLimit, or "".
	OutputField string
	// N is the number of choices, 1 to 128.
	N int64
	// BestOf is the number of choices generated to pick from, 1 to 128, or 0
	// when not given. Only some providers know it in chat.
	BestOf int64
	// ServiceTier and ReasoningEffort are as sent, or "".
	ServiceTier, ReasoningEffort string
	// InferenceGeo is the region the request asks to run in, or "". Some
	// providers charge for it.
	InferenceGeo string
	// LongCache says that some cache_control asks for a cache entry of one
	// hour, which some providers charge at twice the input price.
	LongCache bool

	// Messages are chat's, in order.
	Messages []Message
	// Tools, Functions (arrays), ResponseFormat and Prediction (objects) are
	// raw JSON: they are part of the prompt.
	Tools, Functions, ResponseFormat, Prediction Span
	// ToolChoice, Audio, PromptCacheOptions and Moderation are raw JSON.
	ToolChoice, Audio, PromptCacheOptions, Moderation Span
	// ToolNames are the names of function and custom tools.
	ToolNames []string
	// BuiltinTools are the types of all other tools: the provider runs these
	// and charges for them. A tool without a type is listed by the name of
	// its first member.
	BuiltinTools []string
	// ContainerMemory is the memory_limit of the container that a code interpreter makes
	// itself; "" when not given.
	ContainerMemory string
	// WebSearch says that web_search_options is present.
	WebSearch bool
	// MaxToolCalls bounds built-in tool calls, or is -1 when not given.
	MaxToolCalls int64
	// Background asks for the answer to be made without its caller.
	Background bool
	// Refs names what the request refers to instead of containing it: things
	// kept at the provider.
	Refs []Ref
	// Modalities are the kinds of output asked for, or nil.
	Modalities []string
	// Logprobs is as sent, and so is Store, which is true by default for
	// Responses.
	Logprobs, Store bool

	// Inputs are the texts of a request for embeddings, of a moderation, and
	// the prompts of Completions.
	Inputs []Text
	// InputItems is the number of things to embed or prompts: texts, or arrays
	// of token ids. 1 to 2,048.
	InputItems int
	// Suffix is the text behind the one to be filled in, a JSON string, and
	// Echo repeats each prompt in its answer; of Completions only.
	Suffix Span
	Echo   bool
	// InputTokens is the number of token ids given in place of text.
	InputTokens int64
	// Dimensions is as sent, or -1.
	Dimensions int64
	// EncodingFormat is as sent, or "".
	EncodingFormat string

	// Creation is what a request for pictures, speech or a transcript says of
	// them; nil for all others.
	Creation *Creation
	// Form is how the request came if not as JSON; then Body only describes it.
	Form *Form

	// Unknown lists, in order, top-level names that OpenAI's API does not
	// have. What they cost is not in the Request.
	Unknown []string

	object  Span     // the whole document, without white space around it
	members []member // its members, in order
	texts   []Text   // what the messages' Texts point into
}

// member is one top-level name and value, as raw JSON.
type member struct{ name, value Span }

// prompted reports whether the request names a stored prompt.
func (r *Request) prompted() bool {
	return slices.ContainsFunc(r.Refs, func(ref Ref) bool { return ref.Kind == RefPrompt })
}

// Choices returns how many answers the provider generates: the larger of N
// and BestOf, for each prompt.
func (r *Request) Choices() int64 { return max(r.N, r.BestOf) * r.prompts() }

// Answers returns how many of them it sends back.
func (r *Request) Answers() int64 { return r.N * r.prompts() }

func (r *Request) prompts() int64 {
	if r.Endpoint != Completions {
		return 1
	}
	return int64(max(r.InputItems, 1))
}

// Raw returns the bytes of s, uncopied. They must not be written to.
func (r *Request) Raw(s Span) []byte { return r.Body[s.Start:s.End:s.End] }

// Message is one chat message.
type Message struct {
	// Role is as sent, or "".
	Role string
	// Texts are all the texts of the message, in order.
	Texts  []Text
	Images []Image
	Audio  []Media
	Files  []Media
}

// TextKind says what part of a request a text is.
type TextKind uint8

// The kinds of text.
const (
	KindContent  TextKind = iota // message content or a text part
	KindRefusal                  // an earlier refusal by the model
	KindName                     // the name of a message's author
	KindToolCall                 // name or arguments of an earlier tool call
	KindInput                    // an input of embeddings or a moderation, or a prompt
	KindOther                    // a member OpenAI does not define; any JSON value
)

// Text is a piece of prompt. Its Span is the raw JSON string with its quotes,
// except that KindOther may be any JSON value.
type Text struct {
	Kind TextKind
	Span Span
}

// Unquote appends the decoded text of t to dst. It does not allocate when dst
// has t.Span.Len() bytes to spare. A KindOther that is not a string is
// appended as raw JSON.
func (r *Request) Unquote(dst []byte, t Text) []byte {
	raw := r.Raw(t.Span)
	if len(raw) < 2 || raw[0] != '"' {
		return append(dst, raw...)
	}
	return appendUnquoted(dst, raw[1:len(raw)-1])
}

// Plain returns the decoded text of t: where it stands in Body if that has no
// escapes, and in scratch otherwise, which is returned for the next text. It must
// not be written to.
func (r *Request) Plain(scratch []byte, t Text) (text, kept []byte) {
	raw := r.Raw(t.Span)
	if len(raw) < 2 || raw[0] != '"' {
		return raw, scratch
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner, scratch
	}
	text = appendUnquoted(slices.Grow(scratch[:0], len(inner)), inner)
	return text, text
}

// Image is a picture in a message.
type Image struct {
	// URL is the raw JSON string: a data: URL or an address.
	URL Span
	// Detail is as sent, or "".
	Detail string
}

// Media is a recording or a file in a message.
type Media struct {
	// Data is the raw JSON string with the base64 data (or data: URL).
	Data Span
	// Format is the audio format as sent, or "".
	Format string
	// ID names something kept at the provider: an uploaded file, or the audio
	// of an earlier answer. Then Data is absent.
	ID string
	// Name is the file name as sent, or "".
	Name string
	// Remote says that the provider fetches the file from an address.
	Remote bool
}
