package wire

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync"
)

// Answer holds the metadata of an answer, or of the usage chunk of a stream.
type Answer struct {
	// ID, Model and ServiceTier are as the provider sent them, or "". The call is billed by this
	// Model and ServiceTier, not by those of the request.
	ID, Model, ServiceTier string
	// Usage is valid if HasUsage is set. Its numbers are in [0, 2^30], and no part is larger than
	// its whole.
	Usage    Usage
	HasUsage bool
	// Drawn is what the image tool of a response used, in addition to Usage.
	Drawn Usage
	// Cost is what the provider reports the call cost, in billionths of a currency that it does not
	// name; CostUSD is a cost in nano-USD according to its name. 0 if it does not.
	Cost, CostUSD int64
	// Region is where the call was processed according to the usage, or "".
	Region string
	// Rounded means that a count was a fraction and was rounded up.
	Rounded bool
	// Fault describes what was wrong with the usage, or is "". If HasUsage is set too, the numbers
	// were clamped or completed and should be treated as an estimate.
	Fault string
	// Unknown names a count of tokens that no server is known to report, or is "". It is included in
	// Usage.Output, because it may be billed.
	Unknown string
	// Steps are the passes of models that a Messages call consists of, if it had several. Each is billed by its
	// own model, and Usage only shows what the answering model used. The steps of a stream are those so far.
	Steps []Step
	// Status is that of a response ("completed", "incomplete", "queued"), or "".
	Status string
	// Items are the ids of a response's output, as far as it has ids.
	Items []string
	// Containers are the ids of the containers in which its code ran.
	Containers []string
	// Hidden means that the only fault is output tokens that are only in the total: they are
	// included in Usage.Output.
	Hidden bool
	// TimedWrites means that the usage distinguishes one-hour cache writes from others.
	TimedWrites bool
	// Failed means that the document is no answer: it says that the call failed, or has nothing of
	// what the endpoint returns. [ParseError] reads it.
	Failed bool
	// Short means that the document has an answer's beginning and no end.
	Short bool
}

// After returns the answer with the usage of an earlier chunk, of which the greater counts are kept.
func (a Answer) After(before Answer) Answer {
	u, old := &a.Usage, before.Usage
	if before.TimedWrites && !a.TimedWrites { // Anthropic's later counts do not distinguish them
		u.CacheWrite1h = min(old.CacheWrite1h, u.CacheWrite)
		u.CacheWrite -= u.CacheWrite1h
	}
	if before.TimedWrites || old.CacheWrite > 0 {
		u.mergeInput(old)
	} else if old.Input > u.Input {
		u.Input, u.AudioIn, u.ImageIn = old.Input, old.AudioIn, old.ImageIn
		u.CachedInput, u.CachedAudio = old.CachedInput, old.CachedAudio
		u.CacheWrite, u.CacheWrite1h = old.CacheWrite, old.CacheWrite1h
	}
	if old.Output > u.Output {
		u.Output, u.Reasoning, u.AudioOut, u.ImageOut = old.Output, old.Reasoning, old.AudioOut, old.ImageOut
	}
	u.ToolCalls = max(u.ToolCalls, old.ToolCalls)
	a.ID, a.Model = cmp.Or(a.ID, before.ID), cmp.Or(a.Model, before.Model)
	a.ServiceTier, a.Region = cmp.Or(a.ServiceTier, before.ServiceTier), cmp.Or(a.Region, before.Region)
	a.Cost, a.CostUSD = max(a.Cost, before.Cost), max(a.CostUSD, before.CostUSD)
	if len(a.Steps) == 0 {
		a.Steps = before.Steps
	}
	a.Unknown = cmp.Or(a.Unknown, before.Unknown)
	a.Rounded, a.TimedWrites = a.Rounded || before.Rounded, a.TimedWrites || before.TimedWrites
	return a
}

// mergeInput keeps the greatest count of each class of input: later events may omit some.
func (u *Usage) mergeInput(old Usage) {
	plain := max(u.plain(), old.plain())
	u.CachedInput, u.CacheWrite = max(u.CachedInput, old.CachedInput), max(u.CacheWrite, old.CacheWrite)
	u.CacheWrite1h = max(u.CacheWrite1h, old.CacheWrite1h)
	u.Input = min(plain+u.CachedInput+u.CacheWrite+u.CacheWrite1h, maxCount)
}

// plain is the input that no cache has to do with.
func (u *Usage) plain() int64 { return u.Input - u.CachedInput - u.CacheWrite - u.CacheWrite1h }

// ParseUsage reads a complete answer of ep that is not a stream. The result equals Answer.HasUsage:
// false means that the call has to be billed by an estimate. It accepts any bytes: it skips unknown
// members, uses the last of two members with the same name, and accepts missing or null details.
func ParseUsage(ep Endpoint, answer []byte) (Answer, bool) {
	r := answerReaders.Get().(*answerReader)
	defer r.release()
	r.lexer, r.wants = lenient(answer), ep.Traits().content
	err := r.documents(r.member)
	a := r.answer(ep)
	if err != nil {
		a.HasUsage = false
		a.Usage, a.Drawn = Usage{}, Usage{}
		a.Cost, a.CostUSD = 0, 0
		a.Fault = "the answer is not a JSON object"
	}
	a.judge(&r.lexer, r.failed(ep), err)
	return a, a.HasUsage
}

// judge sets Failed and Short after a whole document was read.
func (a *Answer) judge(l *lexer, failed bool, err error) {
	start := bytes.TrimSpace(bytes.TrimPrefix(l.buf, byteOrderMark))
	a.Short = errors.Is(err, errEnd) && bytes.HasPrefix(start, []byte("{"))
	a.Failed = !a.Short && (failed || err != nil)
}

// answerReader reads the members that answers and chunks have in common.
type answerReader struct {
	lexer
	id, model, tier Span // raw strings
	status          Span // of a response
	usage           usageReader
	beside          usageReader // in another place of the answer
	drawn           usageReader // of the image tool
	items           []Span
	containers      []Span
	tools           int64 // calls of built-in tools that have a fee

	wrong   bool     // it says that the call failed
	framed  bool     // it does so in an object "error" at the top
	message bool     // it has a message or detail, which only errors have at the top
	wants   []string // the members for which the endpoint is called
	content bool     // one is there

	chosen   bool // there are choices
	ended    bool // one has a finish_reason
	collects bool // their text goes to said
	said     []byte
	answers  int64 // choices
	calls    int64 // of tools, in choices
}

var answerReaders = sync.Pool{New: func() any { return new(answerReader) }}

// release returns r to the pool without references to the answer.
func (r *answerReader) release() {
	*r = answerReader{}
	answerReaders.Put(r)
}

// member reads the value of a member.
func (r *answerReader) member(name []byte) error {
	r.finds(name)
	var at *Span
	switch string(name) {
	case "id":
		at = &r.id
	case "model":
		at = &r.model
	case "service_tier":
		at = &r.tier
	case "status":
		at = &r.status
	case "usage":
		return r.usage.read(&r.lexer)
	case "output":
		return r.output()
	case "choices":
		return r.choices()
	case "tool_usage":
		return r.toolUsage()
	default:
		if failure, ok := failureShapes[string(name)]; ok {
			r.framed = r.framed || string(name) == "error" && r.peek() == '{'
			return failure.read(r, name)
		}
		return r.root(name)
	}
	return readString(&r.lexer, at)
}

// root reads the usage in a member of the answer other than usage.
func (r *answerReader) root(name []byte) error {
	root, ok := usageRoots[string(name)]
	switch {
	case !ok || r.peek() != '{':
		return r.skip()
	case root.opens != noSection:
		return r.beside.section(&r.lexer, root.opens)
	}
	return r.object(r.usageMember)
}

// usageMember reads the usage of an object within the answer.
func (r *answerReader) usageMember(name []byte) error {
	if string(name) == "usage" {
		return r.beside.read(&r.lexer)
	}
	return r.skip()
}

// toolUsage reads what the built-in tools of a response used.
func (r *answerReader) toolUsage() error {
	if r.peek() != '{' {
		return r.skip()
	}
	return r.object(func(name []byte) error {
		switch {
		case r.peek() != '{':
		case string(name) == "image_gen":
			return r.drawn.section(&r.lexer, usageSection)
		case string(name) == "web_search":
			return r.drawn.section(&r.lexer, toolSection)
		}
		return r.skip()
	})
}

// mishap reads the value of a member that may say that the call failed.
func (r *answerReader) mishap(name []byte) error {
	v, err := r.value()
	raw := r.buf[v.Start:v.End]
	r.wrong = r.wrong || string(raw) == `"error"` || name[0] == 'e' && given(raw) // error, errors
	return err
}

// complaint notes a member that is at the top of errors only.
func (r *answerReader) complaint([]byte) error {
	r.message = r.message || r.peek() != 'n'
	return r.skip()
}

// baseResp reads how a call ended: it failed if the status_code is not 0.
func (r *answerReader) baseResp([]byte) error {
	if r.peek() != '{' {
		return r.skip()
	}
	return r.object(func(name []byte) error {
		v, err := r.value()
		r.wrong = r.wrong || string(name) == "status_code" && given(r.buf[v.Start:v.End])
		return err
	})
}

// finds notes whether the member at pos is the answer's content: a list has an item that is something.
// A response may have no output yet, and choices are judged as they are read.
func (r *answerReader) finds(name []byte) {
	if !slices.Contains(r.wants, string(name)) {
		return
	}
	first := r.peek()
	r.content = first == '"' || isDigit(first)
	if first == '[' && string(name) != "choices" {
		rest := bytes.TrimLeft(r.buf[r.pos+1:], " \t\r\n")
		r.content = string(name) == "output" || len(rest) > 0 && !bytes.HasPrefix(rest, []byte("]")) &&
			!bytes.HasPrefix(rest, []byte("null")) && !bytes.HasPrefix(rest, []byte("{}"))
	}
}

// IsErrorDocument reports whether a document only says that something failed. Objects that failed
// have an id.
func IsErrorDocument(doc []byte) bool {
	r := answerReader{lexer: lenient(doc)}
	return r.object(r.member) == nil && r.wrong && r.id.IsZero()
}

// SaysError reports whether a document, or the response in it, says that something failed. An object that
// breaks off counts as one that does.
func SaysError(doc []byte) bool {
	r := answerReader{lexer: lenient(doc)}
	err := r.object(func(name []byte) error {
		if string(name) == "response" && r.peek() == '{' {
			return r.object(r.member)
		}
		return r.member(name)
	})
	return r.wrong || err != nil && bytes.HasPrefix(bytes.TrimSpace(doc), []byte("{"))
}

// failed reports whether a whole document of ep is no answer.
func (r *answerReader) failed(ep Endpoint) bool {
	empty := !r.content && (!r.usage.counted() && !r.beside.counted() || r.message)
	return r.wrong || empty || ep.Traits().answersItems() && r.word(r.status) == "failed"
}

func (r *answerReader) answer(ep Endpoint) Answer {
	a := Answer{ID: r.word(r.id), Model: r.word(r.model), ServiceTier: r.word(r.tier)}
	u := &r.usage
	if !u.counted() && r.beside.counted() {
		u = &r.beside
	}
	a.Usage, a.HasUsage = u.usage(ep)
	messages := ep.Traits().Messages
	if messages {
		a.Unknown, a.ServiceTier = u.messages.name, messageTier(r.word(u.tier), r.word(u.messages.speed))
		a.Steps = r.steps(u)
	}
	a.Cost, a.CostUSD = u.cost.nano()
	a.Fault, a.Hidden, a.Rounded, a.TimedWrites = u.fault, u.fault == hiddenTokens, u.rounded, u.timedWrites()
	if tier := r.word(u.tier); a.ServiceTier == "" && tier != "batch" && !messages { // which the call's terms know
		a.ServiceTier = tier
	}
	a.Region = r.word(u.region)
	if !ep.Traits().answersItems() {
		return a
	}
	a.Status = r.word(r.status)
	a.Usage.ToolCalls = max(a.Usage.ToolCalls, r.tools, r.drawn.size(r.drawn.get(countSearches)))
	if r.drawn.counted() {
		a.Drawn, _ = r.drawn.usage(ImageGenerations)
		if a.Drawn.ImageOut == 0 {
			a.Drawn.ImageOut = a.Drawn.Output
		}
	}
	for _, at := range r.items {
		a.Items = append(a.Items, r.word(at))
	}
	for _, at := range r.containers {
		if id := r.word(at); id != "" && !slices.Contains(a.Containers, id) {
			a.Containers = append(a.Containers, id)
		}
	}
	return a
}

// answersItems reports whether the answer is a response, possibly compacted.
func (t *Traits) answersItems() bool { return slices.Contains(t.content, "output") }

// maxItems bounds the ids kept from an answer's output.
const maxItems = 512

// billedTools are the output types of calls of tools with a fee.
var billedTools = map[string]bool{"web_search_call": true, "file_search_call": true, "code_interpreter_call": true}

// freeActions are what a web_search_call may do without a search.
var freeActions = map[string]bool{"open_page": true, "find_in_page": true, "find": true}

func (r *answerReader) output() error {
	if r.peek() != '[' {
		return r.skip()
	}
	r.items = r.items[:0]
	r.containers = r.containers[:0]
	r.tools = 0
	return r.array(func(int) error {
		if r.peek() != '{' {
			return r.skip()
		}
		var id, kind, state, action Span
		err := r.object(func(name []byte) error {
			first := r.peek()
			if string(name) == "action" && first == '{' {
				return r.object(func(name []byte) error {
					if string(name) == "type" {
						return readString(&r.lexer, &action)
					}
					return r.skip()
				})
			}
			v, err := r.value()
			switch {
			case first != '"':
			case string(name) == "id":
				id = v
			case string(name) == "type":
				kind = v
			case string(name) == "status":
				state = v
			case string(name) == "container_id" && len(r.containers) < maxItems:
				r.containers = append(r.containers, v)
			}
			return err
		})
		if id.Len() > len(`""`) && len(r.items) < maxItems {
			r.items = append(r.items, id)
		}
		if billedTools[r.word(kind)] && r.word(state) != "failed" && !freeActions[r.word(action)] {
			r.tools++
		}
		return err
	})
}

// word decodes a raw string, truncated to a length that no name exceeds.
func (r *answerReader) word(at Span) string {
	if at.Len() < 2 {
		return ""
	}
	raw := r.buf[at.Start+1 : at.End-1]
	raw = raw[:min(len(raw), maxWord)]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	return string(appendUnquoted(nil, raw))
}
