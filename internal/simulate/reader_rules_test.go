package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// begin is a full minute.
var begin = time.Date(2026, 11, 18, 10, 20, 0, 0, time.UTC)

// readAll reads files in order, each given as text.
func readAll(t *testing.T, files ...string) *simulate.Trace {
	t.Helper()
	r := simulate.NewReader()
	for i, text := range files {
		err := r.Read(t.Context(), fmt.Sprintf("file%d", i), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
	}
	trace, err := r.Trace()
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// callsOf returns the calls of a trace by running it with an unknown org, which skips all of
// them.
func callsOf(t *testing.T, trace *simulate.Trace) []simulate.Call {
	t.Helper()
	result, err := simulate.Run(t.Context(), trace, nothingKnown(), simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out []simulate.Call
	result.Each(func(d simulate.Decision) bool {
		d.Call.At = d.Call.At.UTC()
		out = append(out, d.Call)
		return true
	})
	return out
}

const settled = `{"kind":"settle","id":"a","org":"acme","user":"ann","key":"k","ip":"10.0.0.7","model":"m","provider":"p",` +
	`"endpoint":"chat.completions","at":"2026-11-18T10:20:05Z","cost_nano":60,"total_nano":60,"waited_ms":1000,"took_ms":2000,` +
	`"held_nano":100,"held_tokens":10,"quota_tokens":12,"stream":true,"usage":{"input":4,"output":2}}`

// A settled entry is a call: it arrived before it waited, and ended at the entry's time.
func TestLedgerEntryIsACall(t *testing.T) {
	got := callsOf(t, readAll(t, settled+"\n\n"))
	want := []simulate.Call{{
		Org: "acme", User: "ann", Key: "k", IP: "10.0.0.7", Model: "m", Provider: "p", Endpoint: "chat.completions",
		At: begin.Add(2 * time.Second), Took: 2 * time.Second, Held: 100, Cost: 60, HeldTokens: 10, Tokens: 6, QuotaTokens: 12, Stream: true,
	}}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The microsecond of the admission, if present, takes precedence over the entry's times.
func TestLedgerEntryWithItsAdmission(t *testing.T) {
	admitted := begin.Add(1500 * time.Millisecond)
	text := strings.Replace(settled, `"stream"`, fmt.Sprintf(`"held_us":%d,"stream"`, admitted.UnixMicro()), 1)
	got := callsOf(t, readAll(t, text))[0]
	if !got.At.Equal(admitted.Add(-time.Second)) || got.Took != 3500*time.Millisecond {
		t.Errorf("got %s for %s, want %s for 3.5s", got.At, got.Took, admitted.Add(-time.Second))
	}
}

// An entry of an older version lacks the hold and the duration: the arrival is taken from the
// id, and the hold equals the charge.
func TestOldLedgerEntry(t *testing.T) {
	id := wire.NewCallID()
	born, ok := wire.CallTime(id)
	if !ok {
		t.Fatalf("%s has no time", id)
	}
	text := fmt.Sprintf(`{"kind":"settle","id":%q,"org":"acme","at":%q,"total_nano":60,"overrun_nano":10,"usage":{"input":4,"output":2}}`,
		id, born.Add(7*time.Second).UTC().Format(time.RFC3339Nano))
	got := callsOf(t, readAll(t, text))[0]
	if !got.At.Equal(born) || got.Took != 7*time.Second {
		t.Errorf("got %s for %s, want %s for 7s", got.At, got.Took, born)
	}
	if got.Held != 50 || got.HeldTokens != 6 || got.QuotaTokens != 6 {
		t.Errorf("got held %d, %d tokens, quota %d, want 50, 6 and 6", got.Held, got.HeldTokens, got.QuotaTokens)
	}
}

// entry returns a ledger line of a charged call.
func entry(kind, id string, cost, total int) string {
	return fmt.Sprintf(`{"kind":%q,"id":%q,"org":"acme","user":"ann","model":"m","at":"2026-11-18T10:20:05Z","took_ms":1000,`+
		`"held_nano":100,"held_tokens":10,"cost_nano":%d,"total_nano":%d}`+"\n", kind, id, cost, total)
}

// Later entries correct the charge of an expired hold, in either order of files.
func TestLaterEntriesCorrect(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		costs []pricing.Nano
	}{
		{"an expired hold", []string{entry(ledger.KindExpire, "a", 100, 100)}, []pricing.Nano{100}},
		{
			"settled late",
			[]string{entry(ledger.KindExpire, "a", 100, 100) + entry(ledger.KindLate, "a", -40, 60)},
			[]pricing.Nano{60},
		},
		{"settled late, read before", []string{entry(ledger.KindLate, "a", -40, 60), entry(ledger.KindExpire, "a",
			100, 100)}, []pricing.Nano{60}},
		{
			"voided late",
			[]string{entry(ledger.KindExpire, "a", 100, 100) + entry(ledger.KindVoid, "a", -100, 0)},
			[]pricing.Nano{0},
		},
		{"voided beyond its charge", []string{entry(ledger.KindCharge, "a", 60, 60) + entry(ledger.KindVoid, "a",
			-100, 0)}, []pricing.Nano{0}},
		{"late without its expiry", []string{entry(ledger.KindLate, "b", 60, 60)}, []pricing.Nano{60}},
		{"void without its charge", []string{entry(ledger.KindVoid, "b", -60, 0)}, nil},
		{"of another attempt", []string{entry(ledger.KindExpire, "a", 100, 100) +
			strings.Replace(entry(ledger.KindVoid, "a", -100, 0), `"id"`, `"attempt":1,"id"`, 1)}, []pricing.Nano{100}},
	} {
		var costs []pricing.Nano
		for _, call := range callsOf(t, readAll(t, c.files...)) {
			costs = append(costs, call.Cost)
		}
		if !slices.Equal(costs, c.costs) {
			t.Errorf("%s: got costs %v, want %v", c.name, costs, c.costs)
		}
	}
}

// A manual correction is not a call; it is counted as skipped.
func TestManualEntriesAreSkipped(t *testing.T) {
	trace := readAll(t, entry("adjust", "x", 5, 5)+entry("reset", "y", 5, 5)+settled)
	if trace.Len() != 1 || !maps.Equal(trace.Skipped, map[string]int{"manual corrections": 2}) {
		t.Errorf("got %d calls and %v, want 1 and 2 corrections", trace.Len(), trace.Skipped)
	}
}

// visit returns a proxy's record of a call; a cost below 0 means none.
func visit(status, cost int, extra string) string {
	charged := ""
	if cost >= 0 {
		charged = fmt.Sprintf(`,"cost_nano_usd":%d`, cost)
	}
	return fmt.Sprintf(`{"msg":"call","time":"2026-11-18T10:20:05Z","org":"acme","user":"ann","model":"m","route":"chat.completions",`+
		`"status":%d,"took":2000000000,"held_nano_usd":100,"held_tokens":10,"tokens":6%s%s}`+"\n", status, charged, extra)
}

func TestAccessLog(t *testing.T) {
	at := begin.Add(3 * time.Second)
	for _, c := range []struct {
		name, text string
		want       string
	}{
		{"charged", visit(200, 60, ""), fmt.Sprint(at, 2*time.Second, "60", false)},
		{"refused", visit(429, -1, ""), fmt.Sprint(at, time.Duration(0), "100", true)},
		{"not admitted for another reason", visit(400, -1, ""), ""},
		{"refused by the provider, free", visit(429, 0, `,"outcome":"rejected"`), ""},
		{"the provider was busy, free", visit(503, 0, `,"outcome":"busy"`), ""},
		{"never sent, free", visit(502, 0, `,"outcome":"unsent"`), ""},
		{"an answer out of the store", visit(200, 60, `,"replayed":true`), ""},
		{"another line of the log", `{"msg":"started","org":"acme"}` + "\n", ""},
	} {
		got := ""
		for _, call := range callsOf(t, readAll(t, c.text)) {
			got += fmt.Sprint(call.At, call.Took, fmt.Sprint(int64(call.Cost)), call.Refused)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// A call that waited has a record of its proxy and one of its worker. It counts as one call
// that arrived at the proxy and ran as the worker says.
func TestAccessLogOfAJob(t *testing.T) {
	proxy := visit(200, 60, `,"job":"j","waited":500000000`)
	worker := strings.Replace(visit(200, 70, `,"job":"j","waited":1000000000`), `"msg":"call"`, `"msg":"job"`, 1)
	both := callsOf(t, readAll(t, proxy, worker))
	if len(both) != 1 || both[0].Cost != 70 || !both[0].At.Equal(begin.Add(2*time.Second)) {
		t.Errorf("got %+v, want one call of 70 at %s", both, begin.Add(2*time.Second))
	}
	alone := callsOf(t, readAll(t, proxy))
	if len(alone) != 1 || alone[0].Cost != 60 || alone[0].Took != 1500*time.Millisecond {
		t.Errorf("without its worker: got %+v, want one call of 60 that took 1.5s", alone)
	}
}

// If there is a ledger, the access log contributes refused calls only.
func TestLedgerGoesBeforeAccessLog(t *testing.T) {
	calls := callsOf(t, readAll(t, visit(200, 99, "")+visit(429, -1, ""), settled))
	if len(calls) != 2 || calls[0].Cost != 60 || !calls[1].Refused {
		t.Errorf("got %+v, want the ledger's call and the refused one", calls)
	}
}

const csvHead = "time,org,user,model,kind,id,total_usd,input_tokens,output_tokens,held_usd,held_tokens,took_ms,waited_ms\n"

func TestCSV(t *testing.T) {
	text := csvHead + "2026-11-18T10:20:05Z,acme,'=ann,m,settle,a,0.000000060,4,2,0.0000001,10,2000,1000\n"
	calls := callsOf(t, readAll(t, text))
	want := simulate.Call{
		Org: "acme", User: "=ann", Model: "m", At: begin.Add(2 * time.Second), Took: 2 * time.Second,
		Held: 100, Cost: 60, HeldTokens: 10, Tokens: 6, QuotaTokens: 10,
	}
	if len(calls) != 1 || calls[0] != want {
		t.Errorf("got  %+v\nwant %+v", calls, want)
	}
}

// The same entries yield the same calls in every export format.
func TestFormsAgree(t *testing.T) {
	lines := entry("settle", "a", 60, 60) + entry("expire", "b", 100, 100) + entry("void", "b", -100, 0)
	head := "output_tokens,time,org,user,model,kind,id,cost_usd,total_usd,input_tokens,held_usd,held_tokens,took_ms\n"
	row := func(kind, id, cost, total string) string {
		return ",2026-11-18T10:20:05Z,acme,ann,m," + kind + "," + id + "," + cost + "," + total +
			",,0.0000001,10,1000\n"
	}
	table := head + row("settle", "a", "0.00000006", "0.00000006") + row("expire", "b", "0.0000001", "0.0000001") +
		row("void", "b", "-0.0000001", "0")
	got, want := callsOf(t, readAll(t, table)), callsOf(t, readAll(t, lines))
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestReaderNamesTheLine(t *testing.T) {
	const good = "2026-11-18T10:20:05Z,acme,ann,m,settle,a,0.1,4,2,0.1,10,2000,1000\n"
	noColumn := "f: neither JSON lines nor CSV of `llmguard usage export`: it has no column "
	for _, c := range []struct{ name, text, want string }{
		{"not JSON", settled + "\n{\"kind\":\n", "f: line 2: "},
		{"a wrong type", settled + "\n\n" + `{"kind":"settle","at":5}`, "f: line 3: "},
		{"no time", settled + "\n" + `{"kind":"settle","org":"acme"}`, "f: line 2: simulate: a call of acme at"},
		{
			"an unknown class", settled + "\n" + strings.Replace(settled, `"stream":true`, `"class":"night"`, 1),
			`f: line 2: simulate: unknown class "night"`,
		},
		{"no table", "hello\n", noColumn + "time"},
		{"a table of something else", "time,org,user\n", noColumn + "model"},
		{"too few cells", csvHead + "a,b\n", "f: record on line 2: wrong number of fields"},
		{
			"a time that is none", csvHead + good + strings.Replace(good, "2026-11-18T10:20:05Z", "yesterday", 1),
			"f: line 3: column time: ",
		},
		{"a number that is none", csvHead + strings.Replace(good, ",4,", ",four,", 1), "column input_tokens: "},
		{
			"money that is none", csvHead + strings.Replace(good, ",0.1,4", ",dear,4", 1),
			"f: line 2: column total_usd: ",
		},
		{"a line break in a cell", csvHead + strings.Replace(good, ",ann,", ",\"a\nn\",", 1) +
			strings.Replace(good, ",4,", ",four,", 1), "f: line 4: "},
	} {
		err := simulate.NewReader().Read(t.Context(), "f", strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

// An empty file is valid and has no calls.
func TestReaderTakesAnEmptyFile(t *testing.T) {
	if n := readAll(t, "", "\n{}\n"[1:]).Len(); n != 0 {
		t.Errorf("got %d calls, want 0", n)
	}
}

// Lines are decoded in parallel and processed in order, across many lots.
func TestReaderKeepsTheOrder(t *testing.T) {
	var b strings.Builder
	const n = 5000
	for i := range n {
		b.WriteString(strings.Replace(entry("settle", fmt.Sprint(i), i, i), `"ann"`, fmt.Sprintf(`"u%d"`, i), 1))
	}
	calls := callsOf(t, readAll(t, b.String()))
	for i, c := range calls {
		if c.User != fmt.Sprintf("u%d", i) {
			t.Fatalf("call %d: got %s, want u%d", i, c.User, i)
		}
	}
	err := simulate.NewReader().Read(t.Context(), "f", strings.NewReader(b.String()+"{"))
	if want := fmt.Sprintf("f: line %d: ", n+1); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Reading stops with its context at any point.
func TestReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		err := simulate.NewReader().Read(ctx, "f", strings.NewReader(settled))
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want %v or all of the file", err, context.Canceled)
		}
	}
}

// An entry read from Redis yields the same call as its exported line.
func TestEntryIsItsLine(t *testing.T) {
	r := simulate.NewReader()
	e := ledger.Entry{Kind: ledger.KindSettle, At: begin.Add(5 * time.Second), Cost: 60, Total: 60}
	e.Org, e.User, e.Key, e.IP, e.Model, e.Provider, e.Endpoint = "acme", "ann", "k", "10.0.0.7", "m", "p", "chat.completions"
	e.WaitedMS, e.TookMS, e.HeldNano, e.HeldTokens, e.QuotaTokens, e.Stream = 1000, 2000, 100, 10, 12, true
	e.Usage.Input, e.Usage.Output = 4, 2
	err := r.Entry(e)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := r.Trace()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := callsOf(t, trace), callsOf(t, readAll(t, settled)); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
