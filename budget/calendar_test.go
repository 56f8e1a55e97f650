package budget

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPeriods: periods around clock changes, given by their starts in UTC.
func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		name, zone, period, at string
		want                   []string // starts of this period and the next two
	}{
		{
			"spring day of 23 h", "Europe/Berlin", "day", "2026-03-29T12:00:00Z",
			[]string{"2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"},
		},
		{
			"autumn day of 25 h", "Europe/Berlin", "day", "2026-10-25T12:00:00Z",
			[]string{"2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"},
		},
		{
			"repeated hour is two periods", "Europe/Berlin", "hour", "2026-10-25T00:30:00Z",
			[]string{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
		},
		{
			"repeated half hour", "Australia/Lord_Howe", "hour", "2026-04-04T14:40:00Z",
			[]string{"2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"},
		},
		{
			"skipped half hour", "Australia/Lord_Howe", "hour", "2026-10-03T14:40:00Z",
			[]string{"2026-10-03T14:30:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
		},
		{
			"hours of India", "Asia/Kolkata", "hour", "2026-05-05T05:45:00Z",
			[]string{"2026-05-05T05:30:00Z", "2026-05-05T06:30:00Z", "2026-05-05T07:30:00Z"},
		},
		{
			"skipped midnight", "America/Sao_Paulo", "day", "2018-11-04T12:00:00Z",
			[]string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "2018-11-06T02:00:00Z"},
		},
		{
			"midnight twice", "America/Havana", "day", "2026-11-01T12:00:00Z",
			[]string{"2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "2026-11-03T05:00:00Z"},
		},
		{
			"skipped day", "Pacific/Apia", "day", "2011-12-30T09:00:00Z",
			[]string{"2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		},
		{
			"week from Monday", "UTC", "week", "2026-11-15T12:00:00Z",
			[]string{"2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		},
		{
			"week from Sunday", "UTC", "week@sunday", "2026-11-15T12:00:00Z",
			[]string{"2026-11-15T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		},
		{
			"month from the 15th, before it", "UTC", "month@15", "2027-01-14T23:59:59Z",
			[]string{"2026-12-15T00:00:00Z", "2027-01-15T00:00:00Z", "2027-02-15T00:00:00Z"},
		},
		{
			"quarter from February", "UTC", "quarter@02-01", "2026-01-31T12:00:00Z",
			[]string{"2025-11-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-05-01T00:00:00Z"},
		},
		{
			"British tax year", "Europe/London", "year@04-06", "2026-04-05T22:59:59Z",
			[]string{"2025-04-05T23:00:00Z", "2026-04-05T23:00:00Z", "2027-04-05T23:00:00Z"},
		},
		{
			"fixed window, aligned to the epoch", "Europe/Berlin", "7m0s", "1970-01-01T00:20:59Z",
			[]string{"1970-01-01T00:14:00Z", "1970-01-01T00:21:00Z", "1970-01-01T00:28:00Z"},
		},
		{
			"month over the year", "America/New_York", "month", "2026-12-31T23:00:00Z",
			[]string{"2026-12-01T05:00:00Z", "2027-01-01T05:00:00Z", "2027-02-01T05:00:00Z"},
		},
		{
			"minute", "UTC", "minute", "2026-12-31T23:59:59Z",
			[]string{"2026-12-31T23:59:00Z", "2027-01-01T00:00:00Z", "2027-01-01T00:01:00Z"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			loc, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			at, _ := time.Parse(time.RFC3339, c.at)
			p, err := parsePeriod(c.period)
			if err != nil {
				t.Fatal(err)
			}
			got := p.start(at.In(loc))
			for _, want := range c.want {
				if text := got.UTC().Format(time.RFC3339); text != want {
					t.Fatalf("period starts %s, want %s", text, want)
				}
				got = p.next(got)
			}
		})
	}
}

// TestPeriodsCoverTime: any instant lies in the period that starts at or before it and ends after
// it.
func TestPeriodsCoverTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{
			"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana",
			"America/Santiago", "Pacific/Chatham", "Africa/Cairo", "Asia/Beirut", "Africa/Casablanca",
		}).Draw(t, "zone")
		text := rapid.SampledFrom([]string{
			"year", "year@04-06", "quarter", "quarter@02-28", "month", "month@15", "month@28", "week", "week@sunday", "day",
			"hour", "minute", "5m0s", "7s", "1000h0m0s",
		}).Draw(t, "period")
		period, err := parsePeriod(text)
		if err != nil {
			t.Fatal(err)
		}
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_700_000_000, 1_900_000_000).Draw(t, "at"), 0).In(loc)
		start := period.start(at)
		next := period.next(start)
		if start.After(at) || !next.After(at) {
			t.Fatalf("%s in %s %s..%s", at, text, start, next)
		}
		if again := period.start(start); !again.Equal(start) {
			t.Fatalf("the period of %s starts %s", start, again)
		}
		if last := period.start(next.Add(-time.Nanosecond)); !last.Equal(start) {
			t.Fatalf("the last instant before %s is in a period from %s, not %s", next, last, start)
		}
		shortest, longest := period.lengths()
		if length := next.Sub(start); length > longest || length < shortest && text != "hour" && text != "minute" {
			t.Fatalf("%s has %s, want %s to %s", text, length, shortest, longest)
		}
	})
}

// TestSkewedClock: a process whose clock is far off changes nothing, because scripts use Redis's
// clock.
func TestSkewedClock(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	f := newFixture(t, rdb, Options{})
	f.clock.fake = nil
	f.now.Store(time.Now().UnixMicro())
	limits := []Limit{
		costLimit("minute", User, Shape{Kind: Calendar, Amount: 1e6, Calendar: "minute"}),
		costLimit("month", User, Shape{Kind: Calendar, Amount: 100, Calendar: "month"}),
		costLimit("win", User, hour(100)),
	}
	want := int64(0)
	for _, skew := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute, 40 * 24 * time.Hour, -40 * 24 * time.Hour} {
		f.clock.ahead.Store(int64(skew))
		h := f.hold(ctx, limits, 10)
		f.clock.ahead.Store(int64(skew))
		f.settle(ctx, h, 10)
		want += 10
		list, err := f.Peek(ctx, limits, h.Call)
		if err != nil || list[1].Used != want || list[2].Used != want {
			t.Fatalf("skew %s: %+v, %v", skew, list, err)
		}
	}
	f.clock.ahead.Store(int64(time.Hour))
	var e *ExceededError
	if _, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(60), Expected: cost(60)}); !errors.As(err, &e) || e.Binding.LimitID != "month" {
		t.Fatalf("hold beyond both: %v", err)
	}
}
