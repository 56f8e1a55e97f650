package wire

// Usage counts the tokens of an answer. It has the fields of pricing.Usage in the same order, so
// that one converts to the other, and follows its rules: CachedInput, CacheWrite, CacheWrite1h,
// AudioIn and ImageIn are parts of Input; CachedAudio is a part of both CachedInput and AudioIn;
// Reasoning, AudioOut and ImageOut are parts of Output. Requests and Characters are not in any answer
// and stay 0; ToolCalls are counted in the output of a response, and reported by some vendors.
type Usage struct {
	Input, CachedInput, CacheWrite, CacheWrite1h int64
	AudioIn, ImageIn                             int64
	Output, Reasoning, AudioOut, ImageOut        int64
	Requests, ToolCalls                          int64
	Images, Characters, AudioMillis, CachedAudio int64
	SearchUnits                                  int64
}

// maxCount is the largest plausible count; pricing has the same bound.
const maxCount = 1 << 30

// beyond replaces larger counts, so that no sum or difference of a few of them overflows.
const beyond = 1 << 40

// counter is one number in a usage object as sent by the provider.
type counter struct {
	n     int64
	given bool
	bad   bool // not a number
}

// or returns c, or other if c was not given or is the zero of a server that has counted under the other name.
func (c counter) or(other counter) counter {
	if c.bad || c.given && (c.n != 0 || other.n <= 0) {
		return c
	}
	return other
}

// usageReader collects the numbers of a usage object.
type usageReader struct {
	ranked       [2][counts]counter // by the rank of their names
	native       bool               // input was counted as input_tokens
	millis       int64              // of audio, if that is what is billed
	tier, region Span               // raw strings
	cost         costReader
	fault        string
	messages     messagesUsage

	present, isObject, brokenParts, rounded bool
}

// read reads the value of a member "usage". The last one counts.
func (u *usageReader) read(l *lexer) error {
	*u = usageReader{}
	switch l.peek() {
	case 'n':
		return l.literal("null")
	case '{':
		return u.section(l, usageSection)
	}
	u.present = true
	return l.skip()
}

func (u *usageReader) section(l *lexer, s section) error {
	u.present, u.isObject = true, true
	return l.object(func(name []byte) error {
		if s == usageSection {
			if ok, err := u.other(l, name); ok {
				return err
			}
		}
		m := usagePlaces[place{s, string(name)}]
		switch {
		case m.opens != noSection && l.peek() == '{':
			return u.section(l, m.opens)
		case m.opens == inputSection, m.opens == outputSection, m.opens == writtenSection:
			u.brokenParts = u.brokenParts || l.peek() != 'n'
		case m.count != noCount:
			u.native = u.native || string(name) == "input_tokens"
			return u.counter(l, &u.ranked[m.rank][m.count])
		case m.opens == noSection:
			return u.messages.unknown(l, s, name)
		}
		return l.skip()
	})
}

// other reads the members of a usage object that are not counts, and reports whether this is one.
func (u *usageReader) other(l *lexer, name []byte) (bool, error) {
	switch string(name) {
	case "seconds", "prompt_audio_seconds":
		at, err := l.value()
		u.millis = parseMillis(l.buf[at.Start:at.End])
		return true, err
	case "service_tier":
		return true, readString(l, &u.tier)
	case "inference_geo":
		return true, readString(l, &u.region)
	case "speed":
		return true, readString(l, &u.messages.speed)
	case "type":
		return true, readString(l, &u.messages.kind)
	case "model":
		return true, readString(l, &u.messages.model)
	case "iterations":
		return true, u.messages.iterations(l)
	}
	return u.cost.member(l, name)
}

// readString reads any value, into at if it is a string.
func readString(l *lexer, at *Span) error {
	first := l.peek()
	v, err := l.value()
	if first == '"' {
		*at = v
	}
	return err
}

// counter reads any value into c. A number may be in quotes; a fraction is rounded up.
func (u *usageReader) counter(l *lexer, c *counter) error {
	first := l.peek()
	at, err := l.value()
	if err != nil || first == 'n' {
		return err
	}
	raw := l.buf[at.Start:at.End]
	if first == '"' {
		raw = raw[1 : len(raw)-1]
	}
	*c = counter{bad: true}
	if !isNumber(raw) {
		return nil
	}
	n, fault := parseInt(raw)
	if fault == intFraction {
		if raw[0] == '-' {
			return nil
		}
		n, u.rounded = parseUSD(raw, 0), true
	}
	*c = counter{n: min(max(n, -beyond), beyond), given: true}
	return nil
}

func (u *usageReader) get(c count) counter { return u.ranked[1][c].or(u.ranked[0][c]) }

func (u *usageReader) counted() bool {
	return u.get(countInput).n > 0 || u.get(countOutput).n > 0 || u.get(countUnits).n > 0 || u.millis > 0
}

// usage returns the sanitized numbers, and whether they can be billed. All doubts are in u.fault.
func (u *usageReader) usage(ep Endpoint) (Usage, bool) {
	in, out := u.get(countInput), u.get(countOutput)
	switch {
	case !u.present:
		return Usage{}, false
	case !u.isObject:
		u.doubt("usage is not an object")
		return Usage{}, false
	case in.bad || out.bad:
		u.doubt("usage has a count that is not a number")
		return Usage{}, false
	}
	if u.millis > 0 && !in.given && !out.given {
		return Usage{AudioMillis: u.millis}, true
	}
	if !u.derive(ep, &in, &out) {
		u.doubt("usage lacks prompt_tokens or completion_tokens")
		return Usage{}, false
	}
	used := Usage{
		Input:  u.clamp(in, maxCount, "prompt_tokens"),
		Output: u.clamp(out, maxCount, "completion_tokens"),
	}
	if ep.Traits().Messages {
		u.addUnknown(&used)
	}
	u.addApart(ep, &used)
	write, write1h := u.writes()
	used.CacheWrite1h = u.clamp(write1h, used.Input, "cache_write_1h_tokens")
	used.CacheWrite = u.clamp(write, used.Input-used.CacheWrite1h, "cache_write_tokens")
	used.CachedInput = u.clamp(u.cached(), used.Input-used.CacheWrite1h-used.CacheWrite, "cached_tokens")
	used.AudioIn = u.clamp(u.get(countAudioIn), used.Input, "audio_tokens")
	used.CachedAudio = u.clamp(u.get(countCachedAudio), min(used.CachedInput, used.AudioIn), "cached audio_tokens")
	used.ImageIn = u.clamp(u.get(countImageIn), used.Input, "image_tokens")
	used.Reasoning = u.clamp(u.get(countReasoning), used.Output, "reasoning_tokens")
	used.AudioOut = u.clamp(u.get(countAudioOut), used.Output, "audio_tokens")
	used.ImageOut = u.clamp(u.get(countImageOut), used.Output, "image_tokens")
	used.ToolCalls = u.clamp(u.get(countSearches), maxCount, "number of searches")
	used.SearchUnits = u.clamp(u.get(countUnits), maxCount, "search_units")
	used.AudioMillis = u.millis
	if u.brokenParts {
		u.doubt("usage details are not an object")
	}
	return used, true
}

func (u *usageReader) cached() counter { return u.get(countCached).or(u.get(countCachedApart)) }

// writes returns the tokens written to the cache for the default time and for an hour. A vendor
// that reports the parts reports their sum as the count of writes.
func (u *usageReader) writes() (usual, hour counter) {
	all, of5m, of1h := u.get(countWritten).or(u.get(countWrittenApart)), u.get(countWritten5m), u.ranked[0][countWritten1h]
	if of1h == (counter{}) {
		return all.or(of5m), u.ranked[1][countWritten1h]
	}
	if !all.given || all.n < of1h.n {
		return of5m, of1h
	}
	all.n -= max(of1h.n, 0)
	return all, of1h
}

// timedWrites reports whether the answer distinguishes how long entries were written for.
func (u *usageReader) timedWrites() bool {
	return u.get(countWritten1h).given || u.get(countWritten5m).given
}

// derive computes a missing count from the total, and reports whether input and output are known.
func (u *usageReader) derive(ep Endpoint, in, out *counter) bool {
	all := u.get(countTotal)
	if ep.Traits().Makes == Numbers {
		*in = in.or(all)
		return in.given || u.get(countUnits).given
	}
	switch {
	case in.given && out.given:
		return true
	case ep.Traits().Messages: // an event of a stream may have only one of them
		return in.given || out.given
	case !all.given || !in.given && !out.given:
		return false
	case in.given:
		*out = counter{n: all.n - in.n, given: true}
	default:
		*in = counter{n: all.n - out.n, given: true}
	}
	return true
}

// hiddenTokens is the fault of a total that includes tokens which are in no other count.
const hiddenTokens = "total_tokens exceeds the sum of its parts"

// addApart counts tokens that are not part of the prompt and completion that were reported: those of
// a cache and of reasoning, where the total or their size shows it, those that a search added, and
// those that are only in the total, which are billed as output.
func (u *usageReader) addApart(ep Endpoint, used *Usage) {
	write, write1h := u.writes()
	cache := u.size(u.cached()) + u.size(write) + u.size(write1h)
	thought, hidden := u.size(u.get(countReasoning)), int64(0)
	if all := u.get(countTotal); all.given && all.n <= maxCount {
		hidden = max(all.n-used.Input-used.Output, 0)
	}
	onlyInput := ep.Traits().Makes == Numbers
	apart := ep.Traits().Messages || cache > used.Input ||
		u.get(countCachedApart).given || u.get(countWrittenApart).given ||
		u.native && u.ranked[0][countCached].n+u.ranked[0][countWritten].n > 0 && !u.get(countTotal).given
	if hidden > 0 && hidden != thought && (hidden == cache || hidden == cache+thought) {
		apart = true
	}
	if apart {
		used.Input = min(used.Input+cache, maxCount)
		if hidden != thought {
			hidden = max(hidden-cache, 0)
		}
	}
	used.Input = min(used.Input+u.size(u.get(countAdded)), maxCount)
	switch {
	case hidden == 0:
		if thought > used.Output {
			used.Output = min(used.Output+thought, maxCount)
		}
		return
	case onlyInput:
		used.Input = min(used.Input+hidden, maxCount)
	default:
		used.Output = min(used.Output+hidden, maxCount)
	}
	if onlyInput || hidden != thought {
		u.doubt(hiddenTokens)
	}
}

// size returns a count as a part of a sum, 0 if it is implausible; clamp reports that.
func (u *usageReader) size(c counter) int64 {
	if c.bad || c.n < 0 || c.n > maxCount {
		return 0
	}
	return c.n
}

// clamp limits c to [0, most].
func (u *usageReader) clamp(c counter, most int64, name string) int64 {
	switch {
	case c.bad:
		u.doubt("usage has a " + name + " that is not a number")
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
