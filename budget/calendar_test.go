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
			got := periodStart(c.period, at.In(loc))
			for _, want := range c.want {
				if text := got.UTC().Format(time.RFC3339); text != want {
					t.Fatalf("period starts %s, want %s", text, want)
				}
				got = nextPeriod(c.period, got)
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
		period := rapid.SampledFrom([]string{"month", "week", "day", "hour", "minute"}).Draw(t, "period")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_700_000_000, 1_900_000_000).Draw(t, "at"), 0).In(loc)
		start := periodStart(period, at)
		next := nextPeriod(period, start)
		if start.After(at) || !next.After(at) {
			t.Fatalf("%s in %s %s..%s", at, period, start, next)
		}
		if again := periodStart(period, start); !again.Equal(start) {
			t.Fatalf("the period of %s starts %s", start, again)
		}
		if last := periodStart(period, next.Add(-time.Nanosecond)); !last.Equal(start) {
			t.Fatalf("the last instant before %s is in a period from %s, not %s", next, last, start)
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
