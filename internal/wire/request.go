package wire

import (
	"bytes"
	"slices"
)

// Span is a half-open range of byte offsets into a [Request]'s Body. The zero
// Span means that the value is absent.
type Span struct{ Start, End int }

// IsZero reports whether the value is absent.
func (s Span) IsZero() bool { return s == Span{} }

// Len returns the number of bytes in s.
func (s Span) Len() int { return s.End - s.Start }

// Limits bounds what [Scan] reads.
type Limits struct {
	// MaxDepth is the maximum nesting of objects and arrays. 0 means 1,000.
	MaxDepth int
	// MaxTokens is the maximum number of names and values in the document. 0 means 200,000. Token
	// ids in an embeddings input do not count, because they take no memory.
	MaxTokens int

	model string // in the path, for ScanFor
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

// Request is what [Scan] found in a request body: exactly what determines its cost. A JSON null
// counts as absent. Spans and Texts point into Body. A Request is immutable and safe for concurrent
// use, as long as Body is not written to.
type Request struct {
	Endpoint Endpoint
	// Body is the request as received.
	Body []byte

	// Model is empty only if a stored prompt among the Refs determines it. Implied means that the
	// request does not name it: it is the API's or the prompt's default, and has to be added to the
	// forwarded request.
	Model   string
	Implied bool
	// Stream is the body's "stream".
	Stream bool
	// IncludeUsage is the body's "stream_options.include_usage".
	IncludeUsage bool
	// OutputLimit is the maximum number of output tokens per choice, 1 to 2^31-1, or -1 if not
	// given.
	OutputLimit int64
	// OutputField is the member that gave OutputLimit, or "".
	OutputField string
	// N is the number of choices, 1 to 128.
	N int64
	// BestOf is the number of choices generated to pick from, 1 to 128, or 0 if not given. Only
	// some providers support it in chat.
	BestOf int64
	// ServiceTier and ReasoningEffort are as sent, or "".
	ServiceTier, ReasoningEffort string
	// InferenceGeo is the requested region, or "". Some providers charge for it.
	InferenceGeo string
	// Speed is that of a Messages request, or "". Fast mode is a service tier of its own.
	Speed string
	// Thinks means that a Messages request asks for thinking, which is output.
	Thinks bool
	// Fallbacks are the models that may answer in place of the requested one, Advisors those that it may ask,
	// and Compacts means that a model may summarize the conversation first: of Messages requests.
	Fallbacks []Fallback
	Advisors  []Advisor
	Compacts  bool
	// Betas are those that the caller's headers select; [Scan] leaves them empty.
	Betas []string
	// ToolPrompt is the number of tokens that the provider adds for its kinds of tools, as far as that is known.
	ToolPrompt int64
	// Caches means that some cache_control requests a cache entry, and LongCache that it requests one of an
	// hour, which some providers charge at twice the input price.
	Caches, LongCache bool

	// Messages are those of chat, in order.
	Messages []Message
	// Tools, Functions (arrays), ResponseFormat and Prediction (objects) are raw JSON that is part
	// of the prompt.
	Tools, Functions, ResponseFormat, Prediction Span
	// ToolChoice, Audio, PromptCacheOptions and Moderation are raw JSON.
	ToolChoice, Audio, PromptCacheOptions, Moderation Span
	// ToolNames are the names of function and custom tools.
	ToolNames []string
	// BuiltinTools are the types of tools that the provider runs and charges for, also of those in
	// namespaces and items of the input. A tool without a type is listed by the name of its first
	// member.
	BuiltinTools []string
	offers       []Span // of Tools: see WithoutOffers
	// ContainerMemory is the memory_limit of the container that a code interpreter creates; "" if
	// not given.
	ContainerMemory string
	// WebSearch means that web_search_options is present.
	WebSearch bool
	// MaxToolCalls bounds built-in tool calls; -1 if not given.
	MaxToolCalls int64
	// Background means that the answer is created while the caller does not wait.
	Background bool
	// Refs are the things stored at the provider that the request refers to instead of containing
	// them.
	Refs []Ref
	// Modalities are the requested kinds of output, or nil.
	Modalities []string
	// Logprobs and Store are as sent; the default of Store is true for Responses.
	Logprobs, Store bool

	// Inputs are the texts of an embeddings or moderation request, and the prompts of Completions.
	Inputs []Text
	// InputItems is the number of inputs or prompts: texts, or arrays of token ids. 1 to 2,048.
	InputItems int
	// Beside is a text that is read with every input, a JSON string: what follows the insertion point of
	// legacy completions, or the query of a reranking. Echo means that each prompt is repeated in its
	// answer, for Completions only.
	Beside Span
	Echo   bool
	// InputTokens is the number of token ids given in place of text.
	InputTokens int64
	// Dimensions is as sent, or -1.
	Dimensions int64
	// EncodingFormat is as sent, or "".
	EncodingFormat string

	// Creation is the part specific to pictures, speech and transcripts; nil for all others.
	Creation *Creation
	// Form describes the original request if it was not JSON; then Body only describes the form.
	Form *Form

	// Unknown lists, in order, top-level names that OpenAI's API does not have. Their cost is not
	// in the Request.
	Unknown []string

	object  Span     // the whole document without surrounding white space
	members []member // its members, in order
	texts   []Text   // the backing array of the messages' Texts
}

// member is one top-level name and value, as raw JSON.
type member struct{ name, value Span }

// prompted reports whether the request names a stored prompt.
func (r *Request) prompted() bool {
	return slices.ContainsFunc(r.Refs, func(ref Ref) bool { return ref.Kind == ObjectPrompt })
}

// Choices returns how many choices the provider generates: the larger of N and BestOf, for each
// prompt.
func (r *Request) Choices() int64 { return max(r.N, r.BestOf) * r.prompts() }

// Remote reports whether the provider reads images or files from other servers.
func (r *Request) Remote() bool {
	return slices.ContainsFunc(r.Messages, func(m Message) bool {
		remote := func(f Media) bool { return f.Remote }
		return slices.ContainsFunc(m.Files, remote) || slices.ContainsFunc(m.Audio, remote) ||
			slices.ContainsFunc(m.Images, func(i Image) bool { return !bytes.HasPrefix(r.Raw(i.URL), []byte(`"data:`)) })
	})
}

// Answers returns how many choices the provider returns.
func (r *Request) Answers() int64 { return r.N * r.prompts() }

func (r *Request) prompts() int64 {
	if !r.Endpoint.Traits().PerInput {
		return 1
	}
	return int64(max(r.InputItems, 1))
}

// Raw returns the bytes of s without copying. They must not be modified.
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

// TextKind says which part of a request a text is.
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

// Text is a part of the prompt. Its Span is the raw JSON string with its quotes; for KindOther, it
// may be any JSON value.
type Text struct {
	Kind TextKind
	Span Span
}

// Unquote appends the decoded text of t to dst. It does not allocate if dst has capacity for
// t.Span.Len() more bytes. A KindOther that is not a string is appended as raw JSON.
func (r *Request) Unquote(dst []byte, t Text) []byte {
	raw := r.Raw(t.Span)
	if len(raw) < 2 || raw[0] != '"' {
		return append(dst, raw...)
	}
	return appendUnquoted(dst, raw[1:len(raw)-1])
}

// Plain returns the decoded text of t: a slice of Body if it has no escapes, and otherwise of
// scratch, which is returned for reuse. The text must not be modified.
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
	// URL is the raw JSON string: a data: URL or another URL. It is zero if the provider fetches the picture by
	// other means, and only the base64 data if Bare is set.
	URL  Span
	Bare bool
	// Detail is as sent, or "".
	Detail string
}

// Media is a recording or a file in a message.
type Media struct {
	// Data is the raw JSON string with the base64 data (or data: URL).
	Data Span
	// Format is the audio format as sent, or "".
	Format string
	// ID names something stored at the provider: an uploaded file, or the audio of an earlier
	// answer. Then Data is absent.
	ID string
	// Name is the file name as sent, or "".
	Name string
	// Remote means that the provider fetches the file from a URL.
	Remote bool
}
