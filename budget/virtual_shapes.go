package budget

import "time"

// ringTwin is lua/shape_ring.lua: a sliding window of 61 slots.
type ringTwin struct {
	width      int64 // of a slot, us
	cur        int64 // the newest slot
	lead       int64 // over the clock, in slots
	used, held int64
	v, h       [slots + 1]int64 // charged and held, by slot modulo 61
}

const ringSlots = slots + 1

// backMicros and seenMicros are BACK_US and SEEN_US in lua/shapes.lua.
const backMicros, seenMicros = 10_000_000, 5_000_000

// slot returns the slot of the twin's own time and its lead over the clock.
func (r *ringTwin) slot(now int64) (slot, lead int64) {
	slot, lead = now/r.width+r.lead, r.lead
	if (r.cur-slot)*r.width > backMicros {
		lead += r.cur - 1 - slot
		slot = r.cur - 1
	}
	return slot, lead
}

func (r *ringTwin) at(now int64) (used, held int64) {
	slot, _ := r.slot(now)
	if slot-r.cur > slots {
		return 0, 0
	}
	used, held = r.used, r.held
	for i := r.cur + 1; i <= slot; i++ {
		used, held = used-r.v[i%ringSlots], held-r.h[i%ringSlots]
	}
	return used, held
}

func (r *ringTwin) late(now int64) bool {
	slot, lead := r.slot(now)
	used, _ := r.at(now)
	return used > 0 && (lead != r.lead || (slot-r.cur)*r.width > seenMicros)
}

func (r *ringTwin) open(now int64) {
	slot, lead := r.slot(now)
	r.lead = lead
	if slot-r.cur > slots {
		*r = ringTwin{width: r.width, cur: slot, lead: lead}
		return
	}
	for r.cur < slot {
		r.cur++
		k := r.cur % ringSlots
		r.used, r.held = r.used-r.v[k], r.held-r.h[k]
		r.v[k], r.h[k] = 0, 0
	}
}

func (r *ringTwin) charge(_ *VirtualHold, n int64, held bool) place {
	k := r.cur % ringSlots
	r.v[k], r.used = r.v[k]+n, r.used+n
	if held {
		r.h[k], r.held = r.h[k]+n, r.held+n
	}
	return place{at: r.cur}
}

func (r *ringTwin) merges(p place) bool { return p.at == r.cur }

func (r *ringTwin) change(_ *VirtualHold, p place, from, to int64, open bool) int64 {
	if p.at > r.cur || r.cur-p.at > slots {
		return 0
	}
	k := p.at % ringSlots
	back := min(from-to, r.v[k])
	r.v[k], r.used = r.v[k]-back, r.used-back
	if open {
		h := min(from, r.h[k])
		r.h[k], r.held = r.h[k]-h, r.held-h
	}
	return back
}

func (r *ringTwin) look(now, excess int64) (resets, frees int64) {
	if used, _ := r.at(now); used == 0 {
		return 0, 0
	}
	slot, lead := r.slot(now)
	newest, gone := max(slot, r.cur), int64(0)
	for i := newest - slots; i <= r.cur; i++ {
		if v := r.v[i%ringSlots]; v > 0 {
			resets = (i + ringSlots - lead) * r.width
			if gone < excess {
				frees = resets
			}
			gone += v
		}
	}
	return resets, frees
}

func (*ringTwin) close() {}

// periodTwin is lua/shape_period.lua: a calendar period.
type periodTwin struct {
	period     period
	zone       *time.Location
	used, held int64
	from, to   int64 // us; 0, 0 before the first charge
}

func (p *periodTwin) over(now int64) bool { return now >= p.to }

func (p *periodTwin) at(now int64) (used, held int64) {
	if p.over(now) {
		return 0, 0
	}
	return p.used, p.held
}

func (p *periodTwin) span(now int64) (from, to int64) {
	start := p.period.start(time.UnixMicro(now).In(p.zone))
	return start.UnixMicro(), p.period.next(start).UnixMicro()
}

func (*periodTwin) late(int64) bool { return false }

func (p *periodTwin) open(now int64) {
	if p.over(now) {
		p.used, p.held = 0, 0
		p.from, p.to = p.span(now)
	}
}

func (p *periodTwin) charge(_ *VirtualHold, n int64, held bool) place {
	p.used += n
	if held {
		p.held += n
	}
	return place{at: p.from}
}

func (p *periodTwin) merges(at place) bool { return at.at == p.from }

func (p *periodTwin) change(_ *VirtualHold, at place, from, to int64, open bool) int64 {
	if at.at != p.from {
		return 0
	}
	back := min(from-to, p.used)
	p.used -= back
	if open {
		p.held = max(p.held-from, 0)
	}
	return back
}

func (p *periodTwin) look(now, _ int64) (resets, frees int64) {
	to := p.to
	if p.over(now) {
		_, to = p.span(now)
	}
	return to, to
}

func (*periodTwin) close() {}

// concurrencyTwin is lua/shape_concurrency.lua: open holds by the end of their lease.
type concurrencyTwin struct {
	lease int64
	now   int64
	ends  map[*VirtualHold]int64
	first int64 // lower bound of the lease ends; 0 if not known
}

// forgottenAfter is how long a hold that was never ended still counts after the end of its lease,
// in microseconds.
const forgottenAfter = dayMicros

func (c *concurrencyTwin) at(now int64) (used, held int64) {
	n := int64(len(c.ends))
	if now-forgottenAfter >= c.first {
		n, c.first = 0, 1<<62
		for _, end := range c.ends {
			c.first = min(c.first, end)
			if end > now-forgottenAfter {
				n++
			}
		}
	}
	return n, n
}

func (*concurrencyTwin) late(int64) bool { return false }

func (c *concurrencyTwin) open(now int64) { c.now = now }

func (c *concurrencyTwin) charge(h *VirtualHold, _ int64, _ bool) place {
	if c.first <= c.now-forgottenAfter {
		for other, end := range c.ends {
			if end <= c.now-forgottenAfter {
				delete(c.ends, other)
			}
		}
	}
	c.ends[h] = c.now + c.lease
	c.first = min(c.first, c.ends[h])
	return place{}
}

func (*concurrencyTwin) merges(place) bool { return false }

func (c *concurrencyTwin) change(h *VirtualHold, _ place, _, _ int64, _ bool) int64 {
	delete(c.ends, h)
	return 0
}

func (c *concurrencyTwin) look(now, _ int64) (resets, frees int64) {
	for _, end := range c.ends {
		resets = max(resets, end)
		if end > now-forgottenAfter && (frees == 0 || end < frees) {
			frees = end
		}
	}
	if frees == 0 {
		return 0, 0
	}
	after := func(end int64) int64 {
		if end > now {
			return end
		}
		return now + sweptSoon
	}
	return after(resets), after(frees)
}

// sweptSoon is when to retry if a lease has expired, in microseconds: its hold expires as soon as a
// process has judged it.
const sweptSoon = 1_000_000

func (*concurrencyTwin) close() {}
