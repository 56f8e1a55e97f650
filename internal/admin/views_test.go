package admin_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// history is a ledger of several days: the scripts write each hour of it now, and it is moved to its time.
type history struct {
	*deployment
	rng  *rand.Rand
	sums map[string]map[string][]int64 // by key and field
	all  []redis.XAddArgs
}

// charge settles a random call, or makes a correction.
func (h *history) charge() {
	h.t.Helper()
	pick := func(list ...string) string { return list[h.rng.IntN(len(list))] }
	labels, err := ledger.NewLabels(map[string]string{"project": pick("", "web", "app"), "run": pick("", "nightly", "x")})
	if err != nil {
		h.t.Fatal(err)
	}
	user := pick("alice", "bob")
	c := ledger.Call{
		Org: "acme", User: user, Key: user + pick("-k1", "-k2"), Model: pick("gpt-4o", "o3", strings.Repeat("long", 40)),
		Provider: pick("openai", "spare"), Endpoint: pick("chat.completions", "responses"), Labels: labels,
		Run: ledger.RunPath(pick("", "run_a", "run_a/run_b")),
	}
	cost := func() pricing.Nano { return pricing.Nano(h.rng.Int64N(100_000_000)) }
	switch h.rng.IntN(6) {
	case 0:
		h.spend(c, budget.Settlement{Outcome: "cached", Actual: budget.Amounts{Cost: cost() / 8}})
	case 1:
		h.spend(c, budget.Settlement{Estimated: true, Actual: budget.Amounts{Cost: cost()}})
	case 2:
		a := ledger.Adjustment{ID: wire.NewCallID(), Call: c, Amount: cost() - 50_000_000, By: "ops", Reason: "test", Charged: true}
		if _, err := h.books.Adjust(h.t.Context(), a, nil); err != nil && !errors.Is(err, ledger.ErrBelowZero) {
			h.t.Fatal(err)
		}
	default:
		split := pricing.Split{Input: cost(), CachedInput: cost(), CacheWrite: cost(), Output: cost(), Fees: cost()}
		used := pricing.Usage{Input: 900, CachedInput: h.rng.Int64N(50), CacheWrite: h.rng.Int64N(40), Output: h.rng.Int64N(500)}
		h.spend(c, budget.Settlement{
			Split: split, Usage: used, Actual: budget.Amounts{Cost: split.Total(), Tokens: used.Input + used.Output}, Status: 200,
		})
	}
}

var atMicros = regexp.MustCompile(`"at_us":"?(\d+)"?`)

// takeTo takes what was written now out of Redis, as if it had been written in the hour.
func (h *history) takeTo(hour time.Time) {
	h.t.Helper()
	ctx, n := h.t.Context(), len(h.all)
	list, err := h.rdb.XRange(ctx, "lg:{acme}:ledger", "-", "+").Result()
	if err != nil {
		h.t.Fatal(err)
	}
	for i, m := range list {
		entry, _ := m.Values["e"].(string)
		at := hour.Add(time.Duration(i) * time.Second).UnixMicro()
		m.Values["e"] = atMicros.ReplaceAllString(entry, fmt.Sprintf(`"at_us":%d`, at))
		h.all = append(h.all, redis.XAddArgs{
			Stream: "lg:{acme}:ledger", ID: fmt.Sprintf("%d-%d", at/1000, n+i), Values: m.Values,
		})
	}
	h.rdb.Del(ctx, "lg:{acme}:ledger")
	keys, err := h.rdb.Keys(ctx, "lg:{acme}:sums*").Result()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, key := range keys {
		fields := h.rdb.HGetAll(ctx, key).Val()
		h.rdb.Del(ctx, key)
		name := key[:strings.LastIndex(key, ":")+1] + hour.Format("20060102")
		if h.sums[name] == nil {
			h.sums[name] = map[string][]int64{}
		}
		for field, text := range fields {
			if strings.Contains(key, "by-hour") {
				field = hour.Format("15") + field[2:]
			}
			for i, number := range strings.Split(text, ",") {
				n, err := strconv.ParseInt(number, 10, 64)
				if err != nil {
					h.t.Fatal(err)
				}
				if len(h.sums[name][field]) == i {
					h.sums[name][field] = append(h.sums[name][field], 0)
				}
				h.sums[name][field][i] += n
			}
		}
	}
}

// write writes all hours to Redis.
func (h *history) write() {
	h.t.Helper()
	for i := range h.all {
		if err := h.rdb.XAdd(h.t.Context(), &h.all[i]).Err(); err != nil {
			h.t.Fatal(err)
		}
	}
	for key, fields := range h.sums {
		for field, numbers := range fields {
			text := strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
			if err := h.rdb.HSet(h.t.Context(), key, field, text).Err(); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// get reads a view, as JSON or text.
func (h *history) get(path string, into any) string {
	h.t.Helper()
	w := h.send("GET", path, "")
	if w.Code != http.StatusOK {
		h.t.Fatalf("%s: got %d %.300s", path, w.Code, w.Body)
	}
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			h.t.Fatal(err)
		}
	}
	return w.Body.String()
}

// amounts are nano-USD by value, without those that are 0.
type amounts map[string]int64

func (a amounts) add(value string, n int64) {
	a[value] += n
	if a[value] == 0 {
		delete(a, value)
	}
}

// Any two views of the same question agree to the nano-dollar: the entries of the ledger, usage by anything
// in any zone, spending by anything in any step, the search for calls, statements and FOCUS.
func TestViewsAgree(t *testing.T) {
	h := &history{deployment: deploy(t, twoLabels), rng: rand.New(rand.NewPCG(randtest.Seed(t), 0)), sums: map[string]map[string][]int64{}}
	h.books.SumLabels([]string{"run"})
	today := time.Now().UTC().Truncate(24 * time.Hour)
	begin := today.AddDate(0, 0, -4)
	for hour := begin; hour.Before(today); hour = hour.Add(time.Duration(1+h.rng.IntN(9)) * time.Hour) {
		for range 1 + h.rng.IntN(12) {
			h.charge()
		}
		h.takeTo(hour)
	}
	h.write()

	period := url.Values{"from": {begin.Format(time.RFC3339)}, "to": {today.Format(time.RFC3339)}}
	var entries []ledger.Entry
	for line := range strings.Lines(h.get("/orgs/acme/ledger?"+period.Encode(), nil)) {
		var e ledger.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if len(entries) != len(h.all) || len(entries) == 0 {
		t.Fatalf("got %d entries, want %d", len(entries), len(h.all))
	}
	for _, zone := range []string{"UTC", "America/New_York"} {
		for _, by := range append(ledger.Groupings(), "label:project", "label:run") {
			h.usageAgrees(entries, period, by, zone)
			if zone == "UTC" {
				h.spendAgrees(entries, period, by)
			}
		}
	}
	h.booksAgree(entries, period)
}

// want adds up the entries by a dimension, independently of the query.
func want(t *testing.T, entries []ledger.Entry, by, zone string) amounts {
	t.Helper()
	in, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	out := amounts{}
	for i := range entries {
		e := &entries[i]
		value := map[string]string{
			"org": "acme", "user": e.User, "key": e.Key, "model": ledger.RollupModel(e.Model), "provider": e.Provider,
			"endpoint": e.Endpoint, "run": string(e.Run), "label:project": e.Labels.Get("project"), "label:run": e.Labels.Get("run"),
			"hour": e.At.In(in).Truncate(time.Hour).Format(time.RFC3339), "day": e.At.In(in).Format(time.DateOnly),
			"month": e.At.In(in).Format("2006-01"),
		}[by]
		if by != "class" {
			out.add(value, int64(e.Cost))
			continue
		}
		s := e.Sums()
		for _, part := range s.ByClass() {
			out.add(part.Class, int64(part.Cost))
		}
	}
	return out
}

func (h *history) usageAgrees(entries []ledger.Entry, period url.Values, by, zone string) {
	h.t.Helper()
	q := url.Values{"from": period["from"], "to": period["to"], "by": {by}, "tz": {zone}}
	for _, filter := range []string{"", "cost>-1000000"} { // the second needs entries
		if filter != "" {
			q.Set("filter", filter)
		}
		var u admin.Usage
		h.get("/orgs/acme/usage?"+q.Encode(), &u)
		got := amounts{}
		for i := range u.Lines {
			got.add(*u.Lines[i].Value(by), u.Lines[i].Cost)
		}
		if want := want(h.t, entries, by, zone); fmt.Sprint(got) != fmt.Sprint(want) || u.Since != nil {
			h.t.Errorf("usage by %s in %s, filter %q: got %v since %v, want %v", by, zone, filter, got, u.Since, want)
		}
	}
}

func (h *history) spendAgrees(entries []ledger.Entry, period url.Values, by string) {
	h.t.Helper()
	for _, step := range []string{"24h", "1h", "15m"} {
		var s admin.Spend
		h.get("/spend?limit=1000&org=acme&"+period.Encode()+"&step="+step+"&by="+by, &s)
		got, series := amounts{}, amounts{}
		for _, g := range s.Groups {
			got.add(g.Values[0], g.Cost)
			for _, n := range g.Series {
				series.add(g.Values[0], n)
			}
		}
		want := want(h.t, entries, by, "UTC")
		if fmt.Sprint(got) == fmt.Sprint(want) && fmt.Sprint(series) == fmt.Sprint(want) {
			continue
		}
		h.t.Errorf("spend by %s in steps of %s from %s: got %v, series %v, want %v", by, step, s.Source, got, series, want)
	}
}

// booksAgree compares the search for calls, statements and FOCUS exports, in months.
func (h *history) booksAgree(entries []ledger.Entry, period url.Values) {
	h.t.Helper()
	total := want(h.t, entries, "org", "UTC")["acme"]
	var page admin.CallPage
	h.get("/orgs/acme/calls?limit=10000&"+period.Encode(), &page)
	var found, billed int64
	for i := range page.Data {
		found += int64(page.Data[i].Cost)
	}
	if found != total {
		h.t.Errorf("calls: got %d, want %d", found, total)
	}
	sections := map[string]amounts{}
	for month := range want(h.t, entries, "month", "UTC") {
		for _, row := range table(h.t, h.get("/orgs/acme/statement?format=csv&month="+month, nil)) {
			if sections[row["section"]] == nil {
				sections[row["section"]] = amounts{}
			}
			name := row["name"]
			if name == "(none)" {
				name = ""
			}
			sections[row["section"]].add(name, dollars(h.t, row["cost_usd"]))
		}
		for _, row := range table(h.t, h.get("/orgs/acme/focus?by=user,label:project&month="+month, nil)) {
			billed += dollars(h.t, row["BilledCost"])
		}
	}
	if billed != total || sections["total"][""] != total {
		h.t.Errorf("FOCUS has %d, the statement %d, want %d", billed, sections["total"][""], total)
	}
	for _, by := range []string{"user", "key", "day", "label:project", "label:run"} {
		if got, want := sections[by], want(h.t, entries, by, "UTC"); fmt.Sprint(got) != fmt.Sprint(want) {
			h.t.Errorf("statement by %s: got %v, want %v", by, got, want)
		}
	}
}

// table returns the rows of a CSV by the names of its columns.
func table(t *testing.T, text string) (out []map[string]string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("got %d rows, error %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		one := map[string]string{}
		for i, name := range rows[0] {
			one[name] = row[i]
		}
		out = append(out, one)
	}
	return out
}

// dollars parses an exact amount.
func dollars(t *testing.T, text string) int64 {
	t.Helper()
	digits, negative := strings.CutPrefix(text, "-")
	n, err := pricing.ParseUSD(digits)
	if err != nil {
		t.Fatal(err)
	}
	if negative {
		n = -n
	}
	return int64(n)
}
