package guard

import (
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// account records the usage of an event. Counts are cumulative, and some servers send zeros after the
// real ones.
func (r *relay) account(a wire.Answer) {
	fault := r.call.bill.faultOf(a)
	switch {
	case r.usage && fault == allZero:
		return
	case a.HasUsage && fault == "":
		r.answer = a.After(r.answer)
		if !r.usage {
			r.began = time.Now()
		}
		r.errand.used = &r.answer
		r.usage, r.counted, r.used = true, r.tokens(), time.Now()
	case r.usage: // the counts so far remain the least
	default:
		r.answer = a
		r.hidden = r.hidden || fault != "" && a.Hidden
	}
	r.call.Result.Fault = fault
}

// tally counts text. The text of several choices arrives interleaved, so each chunk is then
// counted separately, which never counts less.
func (r *relay) tally(c wire.Chunk) {
	enc := tokenizer.EncodingFor(r.call.Plan.Target.Model)
	if c.Summary {
		r.summary += int64(tokenizer.Count(enc, c.Text))
	} else {
		r.bytes += int64(len(c.Text))
	}
	if r.call.Plan.Request.Choices() > 1 {
		r.apart += int64(tokenizer.Count(enc, c.Text))
		return
	}
	r.count.Write(c.Text)
}

// visible returns how many tokens of output the caller was sent, or 0 if that does not
// determine the bill. Non-public tokenizers may count more than ours.
func (r *relay) visible() int64 {
	if !r.tells {
		return 0
	}
	return r.billed(int64(r.count.Count()) + r.apart)
}

// most returns a cheap upper bound of produced.
func (r *relay) most() int64 {
	n := max(r.billed(int64(r.count.Upper())+r.apart), r.paced())
	if r.usage {
		n = max(n, r.answer.Usage.Output)
	}
	return n
}

// billed returns how many tokens a provider may bill for a count of ours.
func (r *relay) billed(count int64) int64 { return billedFor(count, r.factor) }

// tokens returns our count of the text so far.
func (r *relay) tokens() int64 { return int64(r.count.Count()) + r.apart }

// seenText returns the visible output, without summaries of reasoning, which may be longer than the
// reasoning that is billed.
func (r *relay) seenText() shown {
	return shown{bytes: r.bytes, count: func() int64 { return r.tokens() - r.summary }}
}

// late returns the tokens of text that followed the last usage.
func (r *relay) late() int64 { return r.billed(r.tokens() - r.counted) }

// charge bills a whole stream by its usage.
func (r *relay) charge() {
	var faults []UsageFault
	if r.call.Result.Fault != "" {
		faults = append(faults, Malformed)
	}
	if late := r.late(); late > 0 {
		r.answer.Usage.Output += late
		faults = append(faults, Outdated)
	}
	r.call.bill.charge(r.answer, r.seenText(), faults...)
}

// chargePart bills a stream that broke off after a usage: its counts, the text that followed, and what
// the provider may have generated since it was last seen to generate.
func (r *relay) chargePart() {
	c := r.call
	since, outcome := r.used, Broken
	if r.errand.left() {
		outcome = ClientGone
	}
	if r.tells && r.seen.After(since) {
		since = r.seen
	}
	after := c.generated(time.Since(since))
	if r.errand.left() && r.tells {
		after = r.sent() - r.visible()
	}
	r.answer.Usage.Output += r.late()
	c.bill.chargePart(outcome, r.answer, r.seenText(), after)
}
