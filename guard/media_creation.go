package guard

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/tokenizer"
)

// Images, speech and transcripts are billed by the tokens of the answer's usage, or by a
// rule that depends only on the request: per image, character or minute. A request whose
// price has no bound is refused.

const (
	// partialTokens is what a partial image of a stream counts.
	partialTokens = 100
	// spokenTokens bounds the tokens of speech per character: at 20 tokens a second it
	// is half a second, twice as long as a spoken digit.
	spokenTokens = 10
	// listenedMillis is how much audio one input token represents, and slowestMillis more than it does
	// for any model.
	listenedMillis = 100
	slowestMillis  = 1000
)

// made is what the plan of a creation holds in addition to tokens.
type made struct {
	images, characters, millis   int64
	perImage, perChar, perMinute bool // what the price counts
	exact                        bool // millis is the true length
}

var _ = metered(meter{input: (*estimator).creationInput, output: (*estimator).creationOutput},
	wire.ImageGenerations, wire.ImageEdits, wire.ImageVariations, wire.Speech, wire.Transcriptions, wire.Translations)

// creationInput counts the input of a request for an image, speech or a transcript, and
// fills in what else it holds.
func (e *estimator) creationInput() (int64, error) {
	p := e.plan
	r := p.Request
	c := counter{cache: e.counts, enc: tokenizer.EncodingFor(p.Target.Model), request: r}
	for _, t := range r.Inputs {
		c.text(t)
	}
	m := &p.made
	m.perImage, m.perChar, m.perMinute = p.Price.ByRule()
	switch r.Endpoint.Traits().Makes {
	case wire.Pictures:
		m.images = r.N
		p.terms.ImageSize, p.terms.ImageQuality = r.Creation.Size, r.Creation.Quality
		p.imageIn = pictureTokens(p.Target.Model, r.Creation)
		c.fixed += p.imageIn
	case wire.Sound:
		m.characters = r.Creation.Characters
	default:
		m.millis, m.exact = r.Creation.Length()
		p.audioIn = (m.millis + listenedMillis - 1) / listenedMillis
		c.fixed += p.audioIn
	}
	n := e.total(&c)
	p.text.pure = false // it shows nothing about text alone
	if m.exact {
		p.text.certain += m.millis / slowestMillis
	}
	return n, nil
}

// creationOutput bounds the tokens of output; 0 if they are not what is billed.
func (e *estimator) creationOutput() (int64, error) {
	r, m := e.plan.Request, &e.plan.made
	switch makes := r.Endpoint.Traits().Makes; {
	case makes == wire.Pictures:
		return e.pictureOutput()
	case e.plan.byRule():
		return 0, nil
	case makes == wire.Sound && e.plan.Price.MaxOutput <= 0:
		return min(spokenTokens*m.characters, math.MaxInt32), nil
	case e.plan.Price.MaxOutput > 0:
		return e.plan.Price.MaxOutput, nil
	}
	return 0, unbounded(r.Model, "per_minute, or max_output with token prices")
}

func (e *estimator) pictureOutput() (int64, error) {
	r := e.plan.Request
	i, ok := e.plan.Price.Image(e.plan.terms)
	switch {
	case ok && i.Each.Given:
		return 0, nil
	case ok:
		return r.N * (i.Tokens*r.Creation.Pictures() + partialTokens*r.Creation.Partial), nil
	case e.plan.Price.HasImages():
		return 0, wire.BadRequest("size", "image_not_priced",
			"There is no price for an image of size %.40q and quality %.40q with %.100q, so its cost cannot be reserved. An "+
				"operator can add it under images in the model's price",
			r.Creation.Size, r.Creation.Quality, r.Model)
	case e.plan.Price.MaxOutput > 0:
		return r.N * (e.plan.Price.MaxOutput*r.Creation.Pictures() + partialTokens*r.Creation.Partial), nil
	}
	return 0, unbounded(r.Model, "images, or max_output with token prices")
}

func unbounded(model, what string) error {
	return wire.BadRequest("model", "request_not_priced",
		"The price of %.100q gives no maximum cost for this call, so its cost cannot be reserved. An operator can add %s "+
			"to the model's price", model, what)
}

// created adds what a creation counts to a usage.
func (p *Plan) created(u *pricing.Usage) {
	m := &p.made
	switch p.Request.Endpoint.Traits().Makes {
	case wire.Pictures:
		u.ImageOut = u.Output
	case wire.Sound:
		u.AudioOut = u.Output
	}
	if m.perImage {
		u.Images = m.images
	}
	if m.perChar {
		u.Characters = m.characters
	}
	if m.perMinute {
		u.AudioMillis = m.millis
	}
}

// byRule reports whether a finished call can be billed without usage.
func (p *Plan) byRule() bool {
	switch p.Request.Endpoint.Traits().Makes {
	case wire.Pictures:
		return p.made.perImage
	case wire.Sound:
		return p.made.perChar
	case wire.Transcripts:
		return p.made.perMinute
	}
	return false
}

// chargeCreated bills a finished call by its answer's usage or by the rule its price
// follows; otherwise it charges the hold.
func (b *bill) chargeCreated(a wire.Created) {
	defer func() { b.reported(a.Answer) }()
	if !b.plan.byRule() {
		fault := b.faultOf(a.Answer)
		if !a.HasUsage || fault != "" || a.Usage.Input+a.Usage.Output == 0 { // it may count only seconds
			b.result.Model, b.result.Tier = a.Model, a.ServiceTier
			b.chargeHold(NoUsage)
			b.result.Fault = fault
			return
		}
		b.charge(a.Answer, b.seenCreated(a))
		return
	}
	told := a.Usage
	if !a.HasUsage {
		told = wire.Usage{}
	}
	if a.Size != "" {
		b.plan.terms.ImageSize = a.Size
	}
	if a.Quality != "" {
		b.plan.terms.ImageQuality = a.Quality
	}
	length, exact := b.plan.made.millis, b.plan.made.exact
	// the recording's header states less than was transcribed
	if told.AudioMillis == 0 && a.ShownMillis > length {
		length, exact = max(a.ShownMillis, b.plan.Request.Creation.LengthBySize()), false
		b.result.Fault = "the transcript is longer than the recording's header states"
	}
	least := a.ShownMillis
	if exact {
		least = max(least, length)
	}
	switch perMinute := b.plan.made.perMinute && told.AudioMillis > 0; {
	case perMinute && told.AudioMillis > max(length, b.plan.Request.Creation.LengthBySize()):
		told.AudioMillis, exact = 0, false // no recording of this size is so long
		b.result.UsageFaults, b.result.Fault = []UsageFault{HighInput}, "usage has more seconds than the recording"
	case perMinute && told.AudioMillis+told.AudioMillis/20+1000 < least: // rounded, or without a short silence
		told.AudioMillis = least
		b.result.UsageFaults, b.result.Fault = []UsageFault{LowInput}, "usage has fewer seconds than the recording"
	}
	guessed := len(b.result.UsageFaults) > 0 || b.plan.made.perMinute && told.AudioMillis == 0 && !exact
	told.Characters, told.Images = b.plan.made.characters, b.plan.made.images
	if a.Pictures > 0 {
		told.Images = a.Pictures
	}
	if told.AudioMillis == 0 {
		told.AudioMillis = length
	}
	a.Usage = b.counted(told)
	b.price(a.Answer)
	b.result.Estimated = b.result.Estimated || guessed
}

// leastPicture is fewer tokens than any model counts for a picture.
const leastPicture = 16

// leastPicture returns the least tokens of output that a picture of the answer can have: half of what the
// price lists for its size and quality.
func (b *bill) leastPicture(a wire.Created) int64 {
	t := b.plan.terms
	t.ImageSize, t.ImageQuality = cmp.Or(a.Size, t.ImageSize), cmp.Or(a.Quality, t.ImageQuality)
	i, ok := b.plan.Price.Image(t)
	if !ok || i.Size == "" || i.Size != t.ImageSize || i.Quality != t.ImageQuality {
		return leastPicture
	}
	return max(leastPicture, i.Tokens/2)
}

// seenCreated returns what shows that output was generated: the transcript, or the pictures.
func (b *bill) seenCreated(a wire.Created) shown {
	if a.Pictures > 0 {
		n := b.leastPicture(a) * a.Pictures
		return shown{bytes: tokenBytes * n, count: func() int64 { return n }}
	}
	return shown{bytes: int64(len(a.Text)), count: func() int64 {
		return int64(tokenizer.Count(tokenizer.EncodingFor(b.plan.Target.Model), a.Text))
	}}
}

// counted keeps the parts of a usage that the price of the endpoint counts.
func (b *bill) counted(u wire.Usage) wire.Usage {
	if !b.plan.made.perImage {
		u.Images = 0
	}
	if !b.plan.made.perChar {
		u.Characters = 0
	}
	if !b.plan.made.perMinute {
		u.AudioMillis = 0
	}
	return u
}

// pictureTokens bounds what the images of a form count as input: OpenAI scales the short
// side to 512 and counts tiles, and more at high fidelity, which some models always use.
func pictureTokens(model string, c *wire.Creation) int64 {
	const low, high = 65 + 8*129, 65 + 8*129 + 6240
	each := int64(high)
	if c.Fidelity == "low" || c.Fidelity == "" && model == "gpt-image-1" {
		each = low
	}
	return each * int64(len(c.Files))
}

// inspectCreated reads what a stream event says about the bill. A stream of several images
// completes each with its own usage; the usages add up.
func (r *relay) inspectCreated(data []byte) {
	event := r.call.Plan.readCreated(wire.EventJSON(data))
	r.heard = r.heard || data[0] == '{'
	r.shows = r.shows || !event.Error && !r.failed
	if event.Error {
		r.fails(data, event.Framed)
	}
	if !event.Done {
		return
	}
	r.ends++
	before := r.created
	r.created = event
	r.created.Pictures = r.ends
	if r.ends == 1 || before.HasUsage != event.HasUsage {
		return
	}
	u := &r.created.Usage
	u.Input += before.Usage.Input
	u.ImageIn += before.Usage.ImageIn
	u.Output += before.Usage.Output
	u.ImageOut += before.Usage.ImageOut
	r.created.Cost += before.Cost
	r.created.CostUSD += before.CostUSD
}

// settleCreated bills a whole answer of a creation, like settlePlain.
func (e *upstreamCall) settleCreated(body []byte) error {
	c := e.call
	a := c.Plan.readCreated(body)
	if err := judgeCreated(c.Plan, a, body); err != nil {
		return err
	}
	c.Result.Ended = true
	c.bill.chargeCreated(a)
	return nil
}

// judgeCreated is verdict for a creation. A transcript may be text.
func judgeCreated(p *Plan, a wire.Created, body []byte) error {
	if a.Fault != "" && p.Request.Creation.AsText() && len(body) > 0 && !isPage(body) {
		return nil
	}
	return verdict(a.Answer, body)
}

func isPage(text []byte) bool {
	start := bytes.ToLower(bytes.TrimSpace(text[:min(len(text), 100)]))
	return bytes.HasPrefix(start, []byte("<!doctype")) || bytes.HasPrefix(start, []byte("<html"))
}

// relaySpeech forwards audio as it arrives. Its cost follows from the request or, roughly,
// from its length; otherwise the hold is charged.
func (e *upstreamCall) relaySpeech(w http.ResponseWriter, resp *http.Response) error {
	c := e.call
	audio := bufio.NewReader(resp.Body)
	first, err := audio.Peek(1)
	if errors.Is(err, io.EOF) || err == nil && notSound(resp.Header, first[0], c.Plan.Request.Creation.Format) {
		answer, _ := io.ReadAll(io.LimitReader(audio, maxErrorAnswer)) // what there is of it counts
		return e.relayError(w, resp, &failure{answer: answer})
	}
	if err != nil {
		return e.interrupted(err)
	}
	c.dropBody(e.sent)
	if c.Plan.byRule() {
		c.bill.chargeCreated(wire.Created{})
	}
	c.head(w, resp)
	if resp.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	w.WriteHeader(resp.StatusCode)
	s := sound{out: w, flush: http.NewResponseController(w).Flush, lost: e.hangUp}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	// A ReadFrom of the writer, or a WriteTo of the reader, would hide the bytes, and the
	// caller's disconnect, from us.
	size, err := io.CopyBuffer(&s, struct{ io.Reader }{audio}, *buf)
	switch {
	case c.Plan.byRule():
	case err != nil:
		e.broke()
	default:
		c.bill.chargeSpoken(s.head, size)
		c.bill.reported(wire.Answer{})
	}
	if s.gone || e.gone() {
		return ErrGone
	}
	if err != nil {
		return wire.BadGateway("The provider's answer was interrupted. The call may have been billed", err)
	}
	c.Result.Ended = true
	c.trail(w.Header())
	return nil
}

// notSound reports whether an answer that begins with this byte is text in place of audio. Raw
// samples may begin with any byte.
func notSound(h http.Header, first byte, format string) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "application/json" || strings.HasPrefix(kind, "text/") ||
		format != "pcm" && strings.IndexByte("{[<", first) >= 0
}

// chargeSpoken estimates the tokens of speech by its length, at most the hold.
func (b *bill) chargeSpoken(head []byte, size int64) {
	const tokenMillis = 50
	millis, ok := wire.SpokenLength(head, size, b.plan.Request.Creation.Format)
	if !ok {
		b.chargeHold(NoUsage)
		return
	}
	b.chargeEstimate(NoUsage, (millis+tokenMillis-1)/tokenMillis)
}

// sound writes an answer's bytes to a caller that may leave. The answer is still read to
// its end.
type sound struct {
	out   io.Writer
	flush func() error
	lost  func()
	head  []byte
	gone  bool
}

func (s *sound) Write(p []byte) (int, error) {
	const most = 4 << 10
	s.head = append(s.head, p[:min(len(p), most-len(s.head))]...)
	if s.gone {
		return len(p), nil
	}
	if _, err := s.out.Write(p); err != nil || s.flush() != nil {
		s.gone = true
		s.lost()
	}
	return len(p), nil
}
