package budget

// logTwin is lua/shape_log.lua: an exact window with a part per charge.
type logTwin struct {
	width      int64 // us
	used, held int64
	last       int64 // time of the last write
	lead       int64 // over the clock
	now, cut   int64 // of open
	written    bool
	parts      []*logPart // by time
}

// logPart is a charge; gone means that it was removed.
type logPart struct {
	at, n int64
	held  bool
	gone  bool
}

// clock returns the twin's own time and its lead over the clock.
func (l *logTwin) clock(now int64) (own, lead int64) {
	if !l.written {
		return now, 0
	}
	lead = l.lead
	if l.last-now-lead > backMicros {
		lead = l.last - now
	}
	return max(now+lead, l.last), lead
}

func (l *logTwin) at(now int64) (used, held int64) {
	used, held = l.used, l.held
	own, _ := l.clock(now)
	cut := own - l.width
	for _, p := range l.parts {
		if p.at > cut {
			break
		}
		if !p.gone {
			used -= p.n
			if p.held {
				held -= p.n
			}
		}
	}
	return used, held
}

// trimAbove is how many parts that have left the window a refusal or a look may leave in place.
const trimAbove = 100

// late is that of twin.
func (l *logTwin) late(now int64) bool {
	own, lead := l.clock(now)
	used, _ := l.at(now)
	return used > 0 && (lead != l.lead || own-l.last > seenMicros)
}

// trims reports whether more than trimAbove parts have left the window.
func (l *logTwin) trims(now int64) bool {
	own, _ := l.clock(now)
	stale, cut := 0, own-l.width
	for _, p := range l.parts {
		if p.at > cut {
			break
		}
		if !p.gone {
			stale++
		}
	}
	return stale > trimAbove
}

func (l *logTwin) open(now int64) {
	l.now, l.lead = l.clock(now)
	l.cut = l.now - l.width
	n := 0
	for n < len(l.parts) && l.parts[n].at <= l.cut {
		if p := l.parts[n]; !p.gone {
			l.used -= p.n
			if p.held {
				l.held -= p.n
			}
			p.gone = true
		}
		n++
	}
	l.parts = l.parts[n:]
}

func (l *logTwin) charge(_ *VirtualHold, n int64, held bool) place {
	at := place{at: l.now}
	if n > 0 {
		at.part = &logPart{at: l.now, n: n, held: held}
		l.parts = append(l.parts, at.part)
	}
	l.used += n
	if held {
		l.held += n
	}
	return at
}

func (*logTwin) merges(place) bool { return false }

func (l *logTwin) change(_ *VirtualHold, p place, from, to int64, open bool) int64 {
	if from == 0 || !l.written || p.at <= l.cut || p.part == nil || p.part.gone {
		return 0
	}
	p.part.n, p.part.held, p.part.gone = to, false, to == 0
	l.used -= from - to
	if open {
		l.held -= from
	}
	return from - to
}

// lookMost is the maximum number of parts that look visits, as in its script.
const lookMost = 1000

func (l *logTwin) look(now, excess int64) (resets, frees int64) {
	if used, _ := l.at(now); used == 0 {
		return 0, 0
	}
	cut := int64(0)
	own, lead := l.clock(now)
	if l.written {
		cut = own - l.width
	}
	gone, walked := int64(0), 0
	for _, p := range l.parts {
		if p.gone {
			continue
		}
		resets = p.at + l.width - lead
		if p.at > cut && gone < excess && walked < lookMost {
			gone, walked = gone+p.n, walked+1
			frees = resets
		}
	}
	return resets, frees
}

func (l *logTwin) close() { l.last, l.written = l.now, true }
