package budget

// Extend is [Store.Extend]. It returns false for a hold that has expired or was ended; a refusal
// leaves the hold unchanged.
func (v *Virtual) Extend(now int64, h *VirtualHold, more Amounts) (bool, *ExceededError) {
	if h.state != holdOpen {
		return false, nil
	}
	grow := make([]int64, len(h.parts))
	refused := false
	for i, t := range h.on.twins {
		l := &h.on.limits[i]
		if l.Metric != Cost && l.Metric != Tokens {
			continue
		}
		grow[i] = l.Metric.amountOf(more)
		used, _ := t.at(now)
		refused = refused || grow[i] > 0 && l.Mode != Shadow && used+grow[i] > l.Shape.Amount
	}
	if refused {
		return true, exceeded(h.on.limits, v.statuses(now, h.on, asks, more), more)
	}
	for i, n := range grow {
		if n > 0 {
			h.grow(now, i, n)
		}
	}
	h.Max, h.Expected = h.Max.add(more), h.Expected.add(more)
	return true, nil
}

// grow adds n to one limit, merging it into the last piece if that has the same place.
func (h *VirtualHold) grow(now int64, i int, n int64) {
	t, p := h.on.twins[i], &h.parts[i]
	t.open(now)
	if last := &p.list[len(p.list)-1]; t.merges(last.place) {
		t.charge(h, n, true)
		last.n += n
	} else {
		p.list = append(p.list, piece{t.charge(h, n, true), n})
	}
	p.total += n
	t.close()
}

// Renew renews an open hold, as a running process does.
func (v *Virtual) Renew(now int64, h *VirtualHold) {
	if h.state != holdOpen {
		return
	}
	h.ends = now + v.lease
	for _, t := range h.on.twins {
		if c, ok := t.(*concurrencyTwin); ok && c.ends[h] > 0 {
			c.ends[h] = h.ends
			c.first = min(c.first, h.ends) // the clock may have gone backwards
		}
	}
}

// Settle is [Store.Settle], also for a hold that has expired or was voided. A settled hold stays
// settled.
func (v *Virtual) Settle(now int64, h *VirtualHold, actual Amounts) {
	if h.state != holdSettled {
		v.end(now, h, holdSettled, func(l *Limit) int64 { return l.Metric.settled(actual) })
	}
}

// SettleFailed is Settle with Settlement.Failed, for a call that is not a job's.
func (v *Virtual) SettleFailed(now int64, h *VirtualHold, actual Amounts) {
	if h.state != holdSettled {
		v.end(now, h, holdSettled, func(l *Limit) int64 { return l.failed(actual) })
	}
}

// failed returns what stays charged of a failed call with these amounts.
func (l *Limit) failed(a Amounts) int64 {
	if l.counts.only {
		return 0
	}
	return l.Metric.settled(a)
}

// Void is [Store.Void].
func (v *Virtual) Void(now int64, h *VirtualHold) {
	if h.state == holdOpen || h.state == holdExpired {
		v.end(now, h, holdVoided, func(*Limit) int64 { return 0 })
		for i := range h.parts {
			h.parts[i] = virtualPart{}
		}
	}
}

// Expire ends a hold whose lease has expired and charges it the given amounts. It reports whether
// it did.
func (v *Virtual) Expire(now int64, h *VirtualHold, charge Amounts) bool {
	if h.state != holdOpen || h.ends > now {
		return false
	}
	v.end(now, h, holdExpired, func(l *Limit) int64 { return l.failed(charge) })
	return true
}

// end changes every limit from what is charged to what is wanted, like regrade in lua/ending.lua.
func (v *Virtual) end(now int64, h *VirtualHold, state holdState, want func(*Limit) int64) {
	for i, t := range h.on.twins {
		t.open(now)
		h.regrade(t, &h.parts[i], want(&h.on.limits[i]))
		t.close()
	}
	h.state = state
}

// regrade gives back excess, newest piece first, or charges what is missing now.
func (h *VirtualHold) regrade(t twin, p *virtualPart, want int64) {
	open := h.state == holdOpen
	back := max(p.total-want, 0)
	for k := len(p.list) - 1; k >= 0; k-- {
		from := p.list[k].n
		to := max(from-back, 0)
		back -= from - to
		if open || to < from {
			p.list[k].n = from - t.change(h, p.list[k].place, from, to, open)
		}
	}
	if want > p.total {
		t.charge(h, want-p.total, false)
	}
	p.total = want
}
