package wire

// Usage counts the tokens of an answer. It has the fields of pricing.Usage in the same order, so
// that one converts to the other, and follows its rules: CachedInput, CacheWrite, CacheWrite1h,
// AudioIn and ImageIn are parts of Input; Reasoning, AudioOut and ImageOut are parts of Output.
// Requests and Characters are not in any answer and stay 0; ToolCalls are counted in the output of
// a response, and reported by some vendors.
type Usage struct {
	Input, CachedInput, CacheWrite, CacheWrite1h int64
	AudioIn, ImageIn                             int64
	Output, Reasoning, AudioOut, ImageOut        int64
	Requests, ToolCalls                          int64
	Images, Characters, AudioMillis              int64
}

// maxCount is the largest plausible count; pricing has the same bound.
const maxCount = 1 << 30

// beyond replaces larger counts, so that no sum or difference of a few of them overflows.
const beyond = 1 << 40

// counter is one number in a usage object as sent by the provider.
type counter struct {
	n     int64
	given bool
	bad   bool // not an integer
}

// or returns c, or other if c was not given.
func (c counter) or(other counter) counter {
	if c.given || c.bad {
		return c
	}
	return other
}

// usageReader collects the numbers of a usage object.
type usageReader struct {
	prompt, completion, total      counter
	cached, write, write1h         counter
	otherCached, otherWrite        counter // as named by DeepSeek and Anthropic
	ofWrites5m, ofWrites1h         counter // parts of the writes, as reported by Anthropic and LiteLLM
	audioIn, imageIn               counter
	reasoning, audioOut, imageOut  counter
	searches                       counter // by the provider's own tool
	millis                         int64   // of audio, if that is what is billed
	cost                           costReader
	fault                          string
	present, isObject, brokenParts bool
}

// read reads the value of a member "usage". The last one counts.
func (u *usageReader) read(l *lexer) error {
	*u = usageReader{}
	switch l.peek() {
	case 'n':
		return l.literal("null")
	case '{':
		u.present, u.isObject = true, true
		return l.object(func(name []byte) error { return u.member(l, name) })
	}
	u.present = true
	return l.skip()
}

func (u *usageReader) member(l *lexer, name []byte) error {
	if ok, err := u.cost.member(l, name); ok {
		return err
	}
	var c *counter
	switch string(name) {
	case "prompt_tokens", "input_tokens":
		c = &u.prompt
	case "completion_tokens", "output_tokens":
		c = &u.completion
	case "total_tokens":
		c = &u.total
	case "seconds":
		at, err := l.value()
		u.millis = parseMillis(l.buf[at.Start:at.End])
		return err
	case "prompt_tokens_details", "input_tokens_details", "input_token_details":
		return u.details(l, (*usageReader).inputDetail)
	case "completion_tokens_details", "output_tokens_details", "output_token_details":
		return u.details(l, (*usageReader).outputDetail)
	case "prompt_cache_hit_tokens", "cache_read_input_tokens":
		c = &u.otherCached
	case "cache_creation_input_tokens":
		c = &u.otherWrite
	case "cache_creation":
		return u.details(l, (*usageReader).writeDetail)
	case "num_search_queries": // Perplexity's
		c = &u.searches
	case "server_tool_use": // Anthropic's and OpenRouter's
		return u.details(l, (*usageReader).toolDetail)
	}
	return readCounter(l, c)
}

func (u *usageReader) toolDetail(l *lexer, name []byte) error {
	if string(name) == "web_search_requests" {
		return readCounter(l, &u.searches)
	}
	return l.skip()
}

// details reads an object of counters; anything else is recorded and skipped.
func (u *usageReader) details(l *lexer, read func(*usageReader, *lexer, []byte) error) error {
	if l.peek() != '{' {
		u.brokenParts = u.brokenParts || l.peek() != 'n'
		return l.skip()
	}
	return l.object(func(name []byte) error { return read(u, l, name) })
}

func (u *usageReader) inputDetail(l *lexer, name []byte) error {
	var c *counter
	switch string(name) {
	case "cached_tokens":
		c = &u.cached
	case "cache_write_tokens", "cache_creation_tokens":
		c = &u.write
	case "cache_write_1h_tokens":
		c = &u.write1h
	case "cache_creation_token_details":
		return u.details(l, (*usageReader).writeDetail)
	case "audio_tokens":
		c = &u.audioIn
	case "image_tokens":
		c = &u.imageIn
	}
	return readCounter(l, c)
}

// writeDetail reads how much was written to the cache for how long.
func (u *usageReader) writeDetail(l *lexer, name []byte) error {
	var c *counter
	switch string(name) {
	case "ephemeral_5m_input_tokens":
		c = &u.ofWrites5m
	case "ephemeral_1h_input_tokens":
		c = &u.ofWrites1h
	}
	return readCounter(l, c)
}

func (u *usageReader) outputDetail(l *lexer, name []byte) error {
	var c *counter
	switch string(name) {
	case "reasoning_tokens":
		c = &u.reasoning
	case "audio_tokens":
		c = &u.audioOut
	case "image_tokens":
		c = &u.imageOut
	}
	return readCounter(l, c)
}

// readCounter reads any value into c, which may be nil.
func readCounter(l *lexer, c *counter) error {
	first := l.peek()
	at, err := l.value()
	if err != nil || c == nil || first == 'n' {
		return err
	}
	*c = counter{bad: true}
	if first == '-' || isDigit(first) {
		if n, fault := parseInt(l.buf[at.Start:at.End]); fault != intFraction {
			*c = counter{n: min(max(n, -beyond), beyond), given: true}
		}
	}
	return nil
}

// usage returns the sanitized numbers, and whether they can be billed. All doubts are in u.fault.
func (u *usageReader) usage(ep Endpoint) (Usage, bool) {
	switch {
	case !u.present:
		return Usage{}, false
	case !u.isObject:
		u.doubt("usage is not an object")
		return Usage{}, false
	case u.prompt.bad || u.completion.bad:
		u.doubt("usage has a count that is not a whole number")
		return Usage{}, false
	}
	if u.millis > 0 && !u.prompt.given && !u.completion.given {
		return Usage{AudioMillis: u.millis}, true
	}
	if !u.derive(ep) {
		u.doubt("usage lacks prompt_tokens or completion_tokens")
		return Usage{}, false
	}
	out := Usage{
		Input:  u.clamp(u.prompt, maxCount, "prompt_tokens"),
		Output: u.clamp(u.completion, maxCount, "completion_tokens"),
	}
	u.addHidden(ep, &out)
	write, write1h := u.writes()
	out.CacheWrite1h = u.clamp(write1h, out.Input, "cache_write_1h_tokens")
	out.CacheWrite = u.clamp(write, out.Input-out.CacheWrite1h, "cache_write_tokens")
	out.CachedInput = u.clamp(u.cached.or(u.otherCached), out.Input-out.CacheWrite1h-out.CacheWrite, "cached_tokens")
	out.AudioIn = u.clamp(u.audioIn, out.Input, "audio_tokens")
	out.ImageIn = u.clamp(u.imageIn, out.Input, "image_tokens")
	out.Reasoning = u.clamp(u.reasoning, out.Output, "reasoning_tokens")
	out.AudioOut = u.clamp(u.audioOut, out.Output, "audio_tokens")
	out.ImageOut = u.clamp(u.imageOut, out.Output, "image_tokens")
	out.ToolCalls = u.clamp(u.searches, maxCount, "number of searches")
	if u.brokenParts {
		u.doubt("usage details are not an object")
	}
	return out, true
}

// writes returns the tokens written to the cache for the default time and for an hour. A vendor
// that reports the parts reports their sum as the count of writes.
func (u *usageReader) writes() (usual, hour counter) {
	all := u.write.or(u.otherWrite)
	if u.ofWrites1h == (counter{}) {
		return all.or(u.ofWrites5m), u.write1h
	}
	if !all.given || all.n < u.ofWrites1h.n {
		return u.ofWrites5m, u.ofWrites1h
	}
	all.n -= max(u.ofWrites1h.n, 0)
	return all, u.ofWrites1h
}

// timedWrites reports whether the answer distinguishes how long entries were written for.
func (u *usageReader) timedWrites() bool {
	return u.write1h.given || u.ofWrites5m.given || u.ofWrites1h.given
}

// derive computes a missing count from the total, and reports whether input and output are known.
func (u *usageReader) derive(ep Endpoint) bool {
	if ep == Embeddings || ep == ResponsesTokens || ep == Moderations {
		u.prompt = u.prompt.or(u.total)
		return u.prompt.given
	}
	switch {
	case u.prompt.given && u.completion.given:
		return true
	case !u.total.given || !u.prompt.given && !u.completion.given:
		return false
	case u.prompt.given:
		u.completion = counter{n: u.total.n - u.prompt.n, given: true}
	default:
		u.prompt = counter{n: u.total.n - u.completion.n, given: true}
	}
	return true
}

// hiddenTokens is the fault of a total that includes tokens which are in no other count.
const hiddenTokens = "total_tokens exceeds the sum of its parts"

// addHidden counts tokens that are only in the total. Some providers leave reasoning tokens out of
// completion_tokens; they are billed as output.
func (u *usageReader) addHidden(ep Endpoint, out *Usage) {
	hidden := u.total.n - out.Input - out.Output
	if !u.total.given || u.total.n > maxCount || hidden <= 0 {
		return
	}
	onlyInput := ep == Embeddings || ep == Moderations
	if onlyInput {
		out.Input += hidden
	} else {
		out.Output += hidden
	}
	if onlyInput || hidden != u.reasoning.n {
		u.doubt(hiddenTokens)
	}
}

// clamp limits c to [0, most].
func (u *usageReader) clamp(c counter, most int64, name string) int64 {
	switch {
	case c.bad:
		u.doubt("usage has a " + name + " that is not a whole number")
		return 0
	case c.n < 0:
		u.doubt("usage has a negative " + name)
		return 0
	case c.n > most:
		u.doubt("usage has an implausibly large " + name)
		return most
	}
	return c.n
}

// doubt records a fault; the first ones are kept.
func (u *usageReader) doubt(text string) {
	switch {
	case u.fault == "":
		u.fault = text
	case len(u.fault) < 200:
		u.fault += "; " + text
	}
}
