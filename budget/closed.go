package budget

import (
	"time"

	"github.com/llmguard/llmguard/budget/outage"
)

// closedUntil returns when a limit in a place reopens after a loss of data: when everything that may
// have been charged to it would have left it. Zero means it is not closed.
func closedUntil(d *outage.DataLoss, place string, l *Limit, now time.Time) time.Time {
	at := d.LostAt(place)
	if at == 0 || l.Metric == Concurrency { // open calls are in no window
		return time.Time{}
	}
	until := time.UnixMicro(at).Add(l.Shape.Span())
	if l.Shape.Kind == Once {
		until = l.Shape.Until
		if began := until.Add(-l.Shape.Window); began.UnixMicro() > at {
			return time.Time{} // created after the loss
		}
	}
	if l.Shape.Kind == Fixed || l.Shape.Kind == Calendar {
		p, zone, err := l.Shape.period()
		if err == nil {
			until = p.boundaries(zone, time.UnixMicro(at)).to
		}
	}
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

// closed updates a status: its limit is closed until the given instant.
func (st *Status) closed(until, now time.Time) {
	if until.IsZero() {
		return
	}
	st.ClosedUntil, st.Remaining, st.Reset = until, 0, max(st.Reset, until.Sub(now))
	if st.Refused && !st.Never {
		st.Wait = until.Sub(now)
	}
}
