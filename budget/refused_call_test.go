package budget

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
)

// refuse has the limit daily refuse a call of a user, and returns its id.
func (f *fixture) refuse(user string, change func(*RefusedCall)) string {
	who := ledger.Call{ID: NewCallID(), Org: f.org, User: user, Key: "k"}
	c := RefusedCall{Call: who, Cause: "limit:daily", Status: 429}
	if change != nil {
		change(&c)
	}
	f.Refusals.Add(c)
	return c.ID
}

func (f *fixture) write() {
	f.t.Helper()
	if err := f.Refusals.Write(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// recorded returns the refused calls of the last days, newest first.
func (f *fixture) recorded(filter RefusalFilter, n int) []RefusedCall {
	f.t.Helper()
	now := time.UnixMicro(f.now.Load())
	filter.To = now.Add(time.Second)
	calls, err := f.Refusals.Calls(f.t.Context(), f.org, filter, n)
	if err != nil {
		f.t.Fatal(err)
	}
	return calls
}

// filter parses a filter of calls with the label project.
func (f *fixture) filter(text string) ledger.Filter {
	f.t.Helper()
	out, err := ledger.ParseFilter(text, func(name string) bool { return name == "project" })
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// ring returns the bytes that the records of an org are said to take, and what they take.
func (f *fixture) ring() (said, real int64) {
	f.t.Helper()
	all := f.rdb.HGetAll(f.t.Context(), ledger.Key(f.org, refusedCalls)).Val()
	said, _ = strconv.ParseInt(all[""], 10, 64)
	for id, text := range all {
		if id != "" {
			real += int64(len(text)) + refusedCallOverhead
		}
	}
	if n := f.rdb.ZCard(f.t.Context(), ledger.Key(f.org, refusedTimes)).Val(); n != int64(max(len(all)-1, 0)) {
		f.t.Errorf("%d times of %d calls", n, len(all)-1)
	}
	return said, real
}

// counts returns how many calls of all users are counted as refused and as waited, for each cause.
func (f *fixture) counts() map[Cause][2]int64 {
	f.t.Helper()
	now := time.UnixMicro(f.now.Load())
	list, err := f.Refusals.List(f.t.Context(), f.org, RefusalFilter{From: now.Add(-72 * time.Hour), To: now.Add(time.Hour)})
	if err != nil {
		f.t.Fatal(err)
	}
	out := map[Cause][2]int64{}
	for _, r := range list {
		n := out[r.Cause]
		out[r.Cause] = [2]int64{n[0] + r.Refused, n[1] + r.Waited}
	}
	return out
}

// TestRefusedCallsAreFound: calls are found by id, by job and by what they have in common, newest first, by another
// process, for a day.
func TestRefusedCallsAreFound(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		first := f.refuse("ann", func(c *RefusedCall) {
			c.JobID, c.Model, c.Labels, c.Run = "job_1", "m", "project=mobile", "run_a/run_b"
			c.Cause, c.Status, c.Metric, c.Needed, c.Left, c.Wait = "brake:wild", 403, Cost, 5, 3, time.Minute
		})
		f.pass(time.Hour)
		second := f.refuse("bob", func(c *RefusedCall) { c.Waited, c.Status = true, 0 })
		f.write()
		again := newFixture(t, rdb, Options{})
		again.org = f.org
		again.now.Store(f.now.Load())
		for _, id := range []string{first, "job_1"} {
			got, err := again.Refusals.Call(t.Context(), f.org, id)
			who := ledger.Call{
				ID: first, Org: f.org, User: "ann", Key: "k", Model: "m", JobID: "job_1", Labels: "project=mobile",
				Run: "run_a/run_b",
			}
			want := RefusedCall{
				Call: who, At: start, Cause: "brake:wild", Status: 403, Metric: Cost, Needed: 5, Left: 3, Wait: time.Minute,
			}
			if err != nil || got == nil || !got.At.Equal(want.At) {
				t.Fatalf("%s: got %+v, %v", id, got, err)
			}
			want.At = got.At
			if *got != want {
				t.Errorf("%s: got %+v, want %+v", id, *got, want)
			}
		}
		for _, id := range []string{"", "job_2", NewCallID()} {
			if got, err := again.Refusals.Call(t.Context(), f.org, id); got != nil || err != nil {
				t.Errorf("%q: got %+v, %v, want nothing", id, got, err)
			}
		}
		for want, got := range map[string][]RefusedCall{
			second + " " + first: again.recorded(RefusalFilter{}, 9),
			second:               again.recorded(RefusalFilter{}, 1),
			first:                again.recorded(RefusalFilter{Cause: "brake", Calls: f.filter("project=mobile run=run_a")}, 9),
			"":                   again.recorded(RefusalFilter{Key: "k", Calls: f.filter("project=web")}, 9),
		} {
			var ids []string
			for _, c := range got {
				ids = append(ids, c.ID)
			}
			if text := strings.Join(ids, " "); text != strings.TrimSpace(want) {
				t.Errorf("got %q, want %q", text, want)
			}
		}
		f.pass(RefusedCallLife - time.Minute)
		third := f.refuse("ann", nil)
		f.write()
		if got := f.recorded(RefusalFilter{}, 9); len(got) != 2 || got[0].ID != third || got[1].ID != second {
			t.Errorf("a day after the first: got %+v", got)
		}
	})
}

// TestWaitIsTakenBack: a call that waits and is refused in the end counts once, as refused, also hours later; its
// record says the last.
func TestWaitIsTakenBack(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		since := time.UnixMicro(f.now.Load())
		id := f.refuse("ann", func(c *RefusedCall) { c.Waited = true })
		f.refuse("ann", func(c *RefusedCall) { c.Waited = true })
		f.write()
		f.pass(30 * time.Hour)
		f.refuse("ann", func(c *RefusedCall) { c.ID, c.Cause, c.Before, c.Since = id, "stop:all", "limit:daily", since })
		f.write()
		want := fmt.Sprint(map[Cause][2]int64{"limit:daily": {0, 1}, "stop:all": {1, 0}})
		if got := fmt.Sprint(f.counts()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		got, err := f.Refusals.Call(t.Context(), f.org, id)
		if err != nil || got == nil || got.Waited || got.Cause != "stop:all" {
			t.Errorf("got %+v, %v", got, err)
		}
		f.refuse("bob", func(c *RefusedCall) { c.ID, c.Waited = "x", true }) // both in one write, in any order
		f.pass(time.Second)
		f.refuse("bob", func(c *RefusedCall) { c.ID, c.Before, c.Since = "x", "limit:daily", time.UnixMicro(f.now.Load()) })
		f.write()
		if got := f.counts()["limit:daily"]; got != [2]int64{1, 1} {
			t.Errorf("got %v refused and waited, want 1, 1", got)
		}
		late := time.UnixMicro(f.now.Load()).Add(time.Second)
		id = f.refuse("ann", func(c *RefusedCall) { c.At = late })
		f.refuse("ann", func(c *RefusedCall) { c.ID, c.Waited = id, true })
		f.write()
		if got, err := f.Refusals.Call(t.Context(), f.org, id); err != nil || got == nil || got.Waited {
			t.Errorf("got %+v, %v; want the later record, whichever is written first", got, err)
		}
	})
}

// TestFloodOfRefusals: of a flood the counts are exact, and the records take at most 1 MiB and have the newest call of
// each user.
func TestFloodOfRefusals(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	long := strings.Repeat("\xf0\x9f\x92\xb8\"", 200)
	newest := map[string]string{}
	for second := range 20 {
		for i := range 1000 {
			user := fmt.Sprint("flood", i%20)
			if i%250 == second%10 {
				user = fmt.Sprint("u", i/250)
			}
			newest[user] = f.refuse(user, func(c *RefusedCall) { c.Model, c.Endpoint = long, long })
		}
		f.write()
		f.pass(time.Second)
	}
	if got := f.counts()["limit:daily"]; got != [2]int64{20_000, 0} {
		t.Errorf("got %v refused and waited, want 20000, 0", got)
	}
	said, real := f.ring()
	if said != real || said > refusedCallBytes || said < refusedCallBytes*8/10 {
		t.Errorf("the records take %d bytes and are said to take %d, want nearly %d", real, said, refusedCallBytes)
	}
	for user, id := range newest {
		if got, err := f.Refusals.Call(t.Context(), f.org, id); err != nil || got == nil {
			t.Errorf("the newest call of %s is not recorded, %v", user, err)
		}
	}
}

// TestLoopKeepsToItsShare: a key that is refused in a loop for longer than its records last does not push out the
// records of others, however old.
func TestLoopKeepsToItsShare(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		var others []string
		var newest string
		for second := range 150 {
			for i := range 20 {
				newest = f.refuse("loop", nil)
				if second < 50 && i == 0 {
					others = append(others, f.refuse(fmt.Sprint("u", second%10), nil))
				}
			}
			f.write()
			f.pass(time.Second)
		}
		for _, id := range append(others, newest) {
			if got, err := f.Refusals.Call(t.Context(), f.org, id); err != nil || got == nil {
				t.Fatalf("the call %s is not recorded, %v", id, err)
			}
		}
		said, real := f.ring()
		if n := len(f.recorded(RefusalFilter{User: "loop"}, 10_000)); n > 2500 || n < 1000 || said != real {
			t.Errorf("%d records of the loop; the records take %d bytes and are said to take %d", n, real, said)
		}
	})
}

// TestRefusalBeforeItsWait: a call counts once if the process that refuses it writes before the one where it waited.
func TestRefusalBeforeItsWait(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, Options{})
		since := time.UnixMicro(f.now.Load())
		id := f.refuse("ann", func(c *RefusedCall) { c.Cause, c.Before, c.Since = "stop:all", "limit:daily", since })
		f.write()
		want := fmt.Sprint(map[Cause][2]int64{"stop:all": {1, 0}})
		if got := fmt.Sprint(f.counts()); got != want {
			t.Errorf("before the wait is written: got %s, want %s", got, want)
		}
		f.refuse("ann", func(c *RefusedCall) { c.ID, c.Waited = id, true })
		f.write()
		if got := fmt.Sprint(f.counts()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		day := ledger.DayText(start.Unix() / 86400)
		for _, name := range []string{"refusals:", "refusals-by-hour:"} {
			if n := f.rdb.HLen(t.Context(), ledger.Key(f.org, name+day)).Val(); n != 1 {
				t.Errorf("%d lines in %s, want only the refusal", n, name)
			}
		}
	})
}

// TestLoopLeavesRoom: a key that is refused in a loop does not drop the records of its org, and its newest are recorded.
func TestLoopLeavesRoom(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	found := f.refuse("ann", nil)
	var newest string
	for range 10 {
		for range 1000 {
			newest = f.refuse("loop", nil)
		}
		f.write()
		f.pass(time.Second)
	}
	if n := len(f.recorded(RefusalFilter{User: "loop"}, 10_000)); n != 10*refusedCallsOfLine {
		t.Errorf("%d records of the loop, want %d in each write", n, refusedCallsOfLine)
	}
	for _, id := range []string{found, newest} {
		if got, err := f.Refusals.Call(t.Context(), f.org, id); err != nil || got == nil {
			t.Errorf("the call %s is not recorded, %v", id, err)
		}
	}
}

// TestRefusedCallsWithoutMemory: calls are counted and not recorded while there is no memory for records, which is
// logged; their bytes count for the org.
func TestRefusedCallsWithoutMemory(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	memory := capacity.New(redistest.DB(rdb), nil, capacity.Options{MemoryShare: 1}, reg)
	f := newFixture(t, rdb, Options{Memory: memory, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "64mb").Err(); err != nil {
		t.Fatal(err)
	}
	lost := f.refuse("ann", nil)
	f.write()
	if got, err := f.Refusals.Call(t.Context(), f.org, lost); got != nil || err != nil || f.counts()["limit:daily"][0] != 1 {
		t.Errorf("without memory: got %+v, %v, %v; want a count and no record", got, err, f.counts())
	}
	if !strings.Contains(log.String(), "refused calls counted but not recorded") {
		t.Errorf("the log is %q", log.String())
	}
	if n, err := testutil.GatherAndCount(reg, "llmguard_capacity_refused_total"); n != 0 || err != nil {
		t.Errorf("%d series of refused content, %v; want none for records that callers do not miss", n, err)
	}
	memory.Configure(capacity.Options{MemoryShare: 80})
	found := f.refuse("ann", nil)
	f.write()
	if got, err := f.Refusals.Call(t.Context(), f.org, found); got == nil || err != nil {
		t.Errorf("with memory: got %+v, %v", got, err)
	}
	if n, err := rdb.HGet(t.Context(), "lg:{capacity}:sums", "o "+f.org).Int64(); err != nil || n < 300 || n > 1000 {
		t.Errorf("%d bytes count for the org, %v", n, err)
	}
}

// TestOldRefusalsAreRead: counts of versions that knew limits only are read as their causes.
func TestOldRefusalsAreRead(t *testing.T) {
	f := newFixture(t, shared(t), Options{})
	key := ledger.Key(f.org, "refusals-by-hour:"+ledger.DayText(start.Unix()/86400))
	at := start.UnixMicro()
	for field, n := range map[string]int{"ann|daily": 1, "ann|cap:all": 2, "*|*": 3} {
		hour := fmt.Sprintf("%02d|", start.Hour())
		if err := f.rdb.HSet(t.Context(), key, hour+field, fmt.Sprintf("%d,0,%d,%d", n, at, at)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprint(map[Cause][2]int64{"limit:daily": {1, 0}, "cap:all": {2, 0}, OtherCauses: {3, 0}})
	if got := fmt.Sprint(f.counts()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
