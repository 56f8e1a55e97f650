package cli_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// hour adds a call of alice, charged n nano-USD, to the sums of its hour and day.
func (s *site) hour(at time.Time, n int64) {
	s.t.Helper()
	at = at.UTC()
	day, field := at.Format("20060102"), "alice|k|openai|chat.completions|gpt-4o"
	for key, field := range map[string]string{
		"lg:{acme}:sums:" + day: field, "lg:{acme}:sums-by-hour:" + day: fmt.Sprintf("%02d|", at.Hour()) + field,
	} {
		old, _ := s.redis.HGet(s.t.Context(), key, field).Result()
		cost, calls := int64(0), int64(0)
		_, _ = fmt.Sscanf(old, "%d,%d,", &cost, &calls)
		text := fmt.Sprintf("%d,%d,0,0,0,0,0,0,0,0,0,0,0,0", cost+n, calls+1)
		if err := s.redis.HSet(s.t.Context(), key, field, text).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// costs returns the sums of a report, by a dimension.
func (s *site) costs(by string, args ...string) map[string]pricing.Nano {
	s.t.Helper()
	var r usageReport
	s.read(&r, append([]string{"usage", "--org", "acme", "--by", by}, args...)...)
	out := map[string]pricing.Nano{}
	for _, l := range r.Lines {
		out[l.By[by]] = l.Cost
	}
	return out
}

func sameCosts(t *testing.T, what string, got, want map[string]pricing.Nano) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestUsageByHourAndZone: days and hours follow the zone and are built from hourly sums. A day
// without hourly data stays a UTC day, and a note says so.
func TestUsageByHourAndZone(t *testing.T) {
	s := newSite(t, orgs)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -5)
	before, date, after := day.AddDate(0, 0, -1).Format(time.DateOnly), day.Format(time.DateOnly), day.AddDate(0, 0, 1).Format(time.DateOnly)
	s.hour(day.Add(10*time.Hour), 4)
	s.hour(day.Add(20*time.Hour), 6)
	period := []string{"--from", before, "--to", after, "--tz", "Asia/Tokyo"} // UTC+9
	sameCosts(t, "days in Tokyo", s.costs("day", period...), map[string]pricing.Nano{date: 4, after: 6})
	sameCosts(t, "days in UTC", s.costs("day", period[:4]...), map[string]pricing.Nano{date: 10})
	sameCosts(t, "hours in Tokyo", s.costs("hour", period...), map[string]pricing.Nano{date + "T19:00+09:00": 4, after + "T05:00+09:00": 6})
	if err := s.redis.Del(t.Context(), "lg:{acme}:sums-by-hour:"+day.Format("20060102")).Err(); err != nil {
		t.Fatal(err)
	}
	sameCosts(t, "without hours", s.costs("day", period...), map[string]pricing.Nano{date: 10})
	_, notes, _ := llmguard(t, append([]string{"usage", "--org", "acme", "--by", "day", "-c", s.file}, period...)...)
	has(t, notes, "have no hourly data")
	s.refuses("--tz Nowhere/Here", "usage", "--tz", "Nowhere/Here")
}

// TestLastHoursAreHours: --from 12h means the last twelve hours, not the days that contain
// them.
func TestLastHoursAreHours(t *testing.T) {
	s := newSite(t, orgs)
	now := time.Now()
	s.hour(now.Add(-13*time.Hour), 1000)
	s.hour(now.Add(-11*time.Hour), 20)
	s.hour(now, 3)
	sameCosts(t, "twelve hours", s.costs("user", "--from", "12h"), map[string]pricing.Nano{"alice": 23})
	sameCosts(t, "fourteen hours", s.costs("user", "--from", "14h"), map[string]pricing.Nano{"alice": 1023})
	sameCosts(t, "two days", s.costs("user", "--from", "1d"), map[string]pricing.Nano{"alice": 1023})
}

// TestHourThatJustBeganIsShown: a report up to a moment within the first second of an hour includes
// that hour.
func TestHourThatJustBeganIsShown(t *testing.T) {
	s := newSite(t, orgs)
	hour := time.Now().UTC().Truncate(24 * time.Hour).Add(-2 * time.Hour)
	s.hour(hour, 5)
	to := hour.Add(300 * time.Millisecond).Format(time.RFC3339Nano)
	got := s.costs("user", "--from", hour.Add(-time.Hour).Format(time.RFC3339), "--to", to)
	sameCosts(t, "up to "+to, got, map[string]pricing.Nano{"alice": 5})
}
