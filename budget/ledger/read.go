package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// Entries calls fn for the org's ledger entries in [from, to), oldest first, until fn returns an
// error. A zero time means no bound. The stream is bounded (Options.LedgerLength): trimmed entries
// are gone.
func (l *Ledger) Entries(ctx context.Context, org string, from, to time.Time, fn func(Entry) error) error {
	return l.stream(ctx, org, streamRange{"ledger", streamFrom(from), streamTo(to), false}, eachEntry(fn))
}

// Recent is Entries in reverse order, newest first.
func (l *Ledger) Recent(ctx context.Context, org string, from, to time.Time, fn func(Entry) error) error {
	return l.stream(ctx, org, streamRange{"ledger", streamFrom(from), streamTo(to), true}, eachEntry(fn))
}

// RecentBefore is Recent for the entries before the one with a LedgerID.
func (l *Ledger) RecentBefore(ctx context.Context, org, before string, from time.Time, fn func(Entry) error) error {
	end, begun := streamID(before), false
	in := streamRange{"ledger", streamFrom(from), end, true}
	return l.stream(ctx, org, in, eachEntry(func(e Entry) error {
		switch {
		case e.LedgerID == before:
			begun = true
		case begun || streamID(e.LedgerID) != end: // other parts of the org may have entries with the same id
			begun = true
			return fn(e)
		}
		return nil
	}))
}

// ValidLedgerID reports whether a text has the form of a LedgerID.
func ValidLedgerID(text string) bool {
	ms, n, ok := strings.Cut(streamID(text), "-")
	_, err := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(n, 10, 64)
	return ok && err == nil && err2 == nil
}

// KeptSince returns the time of the oldest entry in the ledger if older ones were removed; zero if
// none was. Of an org that is spread it is the latest of all parts.
func (l *Ledger) KeptSince(ctx context.Context, org string) (time.Time, error) {
	var since time.Time
	places, err := l.o.Places(ctx, org)
	if err != nil {
		return since, err
	}
	for _, place := range places {
		name := Key(place, "ledger")
		n, err := l.o.Redis.XLen(ctx, name).Result()
		if err != nil {
			return since, l.o.Fault("read ledger", err)
		}
		if n == 0 {
			continue
		}
		info, err := l.o.Redis.XInfoStream(ctx, name)
		if err != nil {
			return since, l.o.Fault("read ledger", err)
		}
		if info.Added <= info.Length || info.First.ID == "" {
			continue
		}
		e, err := entryOf(place, info.First)
		if err != nil {
			return since, err
		}
		if e.At.After(since) {
			since = e.At
		}
	}
	return since, nil
}

// each calls fn for all places in which the org may have data.
func (l *Ledger) each(ctx context.Context, org string, fn func(place string) error) error {
	all, err := l.o.Places(ctx, org)
	for _, place := range all {
		err = errors.Join(err, fn(place))
	}
	return err
}

func eachEntry(fn func(Entry) error) func(string, redisconn.Entry) error {
	return func(place string, m redisconn.Entry) error {
		e, err := entryOf(place, m)
		if err != nil {
			return err
		}
		return fn(e)
	}
}

func entryOf(place string, m redisconn.Entry) (Entry, error) {
	text, _ := m.Values["e"].(string)
	e, err := decodeEntry(text)
	e.LedgerID = m.ID
	_, e.Part = SplitPlace(place)
	if e.Part > 1 {
		e.LedgerID += "." + strconv.Itoa(e.Part)
	}
	return e, err
}

// streamID returns the id of an entry in the stream of its part.
func streamID(ledgerID string) string {
	id, _, _ := strings.Cut(ledgerID, ".")
	return id
}

const streamPage = 1000

func streamFrom(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return strconv.FormatInt(max(t.UnixMilli(), 0), 10) // a stream has no negative ids
}

func streamTo(t time.Time) string {
	if t.IsZero() {
		return "+"
	}
	return "(" + strconv.FormatInt(t.UnixMilli(), 10)
}

// streamRange is what to read of the streams of a name, from start to end or in reverse order.
type streamRange struct {
	name, start, end string
	newest           bool
}

// ErrEnough ends a reading of entries: whatever calls a function with entries returns no error if the function returns
// ErrEnough.
var ErrEnough = errors.New("ledger: enough read")

// stream calls fn for the entries of a stream in all places of an org, in the order of their ids, until it returns an
// error.
func (l *Ledger) stream(
	ctx context.Context, org string, r streamRange, fn func(place string, m redisconn.Entry) error,
) error {
	places, err := l.o.Places(ctx, org)
	if err != nil {
		return err
	}
	open := make([]*streamReader, 0, len(places))
	for _, place := range places {
		s := &streamReader{streamRange: r, o: &l.o, place: place, more: true}
		if err := s.next(ctx); err != nil {
			return err
		}
		if len(s.page) > 0 {
			open = append(open, s)
		}
	}
	for len(open) > 0 {
		first := slices.MinFunc(open, func(a, b *streamReader) int { return a.compare(b) })
		switch err := fn(first.place, first.page[0]); {
		case errors.Is(err, ErrEnough):
			return nil
		case err != nil:
			return err
		}
		first.page = first.page[1:]
		if err := first.next(ctx); err != nil {
			return err
		}
		if len(first.page) == 0 {
			open = slices.DeleteFunc(open, func(s *streamReader) bool { return s == first })
		}
	}
	return nil
}

type streamReader struct {
	streamRange
	o     *Options
	place string
	page  []redisconn.Entry
	more  bool // after the page
}

// next reads another page if the last one is used up.
func (s *streamReader) next(ctx context.Context) (err error) {
	if len(s.page) > 0 || !s.more {
		return nil
	}
	if s.newest {
		s.page, err = s.o.Redis.XRevRangeN(ctx, Key(s.place, s.name), s.end, s.start, streamPage).Result()
	} else {
		s.page, err = s.o.Redis.XRangeN(ctx, Key(s.place, s.name), s.start, s.end, streamPage).Result()
	}
	if err != nil {
		return s.o.Fault("read "+s.name, err)
	}
	s.more = len(s.page) == streamPage
	switch {
	case !s.more:
	case s.newest:
		s.end = "(" + s.page[streamPage-1].ID
	default:
		s.start = "(" + s.page[streamPage-1].ID
	}
	return nil
}

func (s *streamReader) compare(o *streamReader) int {
	order := compareIDs(s.page[0].ID, o.page[0].ID)
	if s.newest {
		order = -order
	}
	return cmp.Or(order, strings.Compare(s.place, o.place))
}
