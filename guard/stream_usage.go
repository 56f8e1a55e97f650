package guard

import (
	"time"
)

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
	late := r.late()
	if r.tells && r.seen.After(since) {
		since = r.seen
	}
	after := late + c.generated(time.Since(since))
	if r.errand.left() && r.tells {
		after = max(late, r.sent()-r.billed(r.counted))
	}
	c.bill.chargePart(outcome, r.answer, r.answer.Usage.Output+after)
}
