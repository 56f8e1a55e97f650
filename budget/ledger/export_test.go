package ledger_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
)

func exportUntilKilled(addr, dir, org string) {
	s := budget.New(redistest.DB(redis.NewClient(&redis.Options{Addr: addr})), budget.Options{})
	x, err := ledger.NewExporter(s.Ledger, ledger.ExporterOptions{
		Dir: dir, Orgs: func(context.Context) []string { return []string{org} }, Interval: time.Millisecond, Lease: 20 * time.Millisecond, Keep: 100,
	})
	if err == nil {
		err = x.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// exported reads all lines of an org's files; an incomplete line is an error.
func exported(t *testing.T, dir, org string) []ledger.Entry {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, org, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var out []ledger.Entry
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var e ledger.Entry
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%s: %q: %v", name, lines.Text(), err)
			}
			out = append(out, e)
			want := ledger.DayOf(e) + ".jsonl"
			if e.Part = partOf(e.LedgerID); e.Part > 1 {
				want = fmt.Sprintf("%s.%d.jsonl", ledger.DayOf(e), e.Part)
			}
			if want != filepath.Base(name) {
				t.Fatalf("entry of %s in %s", want, name)
			}
		}
	}
	return out
}

// partOf returns the part that a ledger id names; 0 for the first.
func partOf(ledgerID string) int {
	_, text, _ := strings.Cut(ledgerID, ".")
	part, _ := strconv.Atoi(text)
	return part
}

// wantOnce checks that the files contain these entries, each once and in order.
func wantOnce(t *testing.T, got []ledger.Entry, want []string) {
	t.Helper()
	ids := make([]string, len(got))
	for i, e := range got {
		ids[i] = e.ID
	}
	if !slices.Equal(ids, want) {
		seen := map[string]int{}
		for _, id := range ids {
			seen[id]++
		}
		for _, id := range want {
			if seen[id] != 1 {
				t.Errorf("entry %s is there %d times", id, seen[id])
			}
		}
		t.Fatalf("%d lines, want %d", len(ids), len(want))
	}
}

func (f *fixture) exporter(dir string, keep int64) *ledger.Exporter {
	f.t.Helper()
	x, err := ledger.NewExporter(f.Ledger, ledger.ExporterOptions{Dir: dir, Orgs: func(context.Context) []string { return []string{f.org} }, Keep: keep})
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// TestExport: wherever a process dies, the next one writes what is missing and nothing twice.
func TestExport(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f, dir := newStill(t, rdb, budget.Options{}), t.TempDir()
		var want []string
		for round, crash := range []string{"", "writing", "written", "", "writing", "lost"} {
			want = append(want, f.charge(7)...)
			x := f.exporter(dir, 1000)
			x.DieAt(func(where string) error {
				if where == crash {
					return errors.New("killed")
				}
				return nil
			})
			if n, err := x.Export(ctx, f.org); (err != nil) != (crash == "writing" || crash == "written") {
				t.Fatalf("round %d: %d, %v", round, n, err)
			}
			if crash == "lost" { // Redis loses the position, for example in a failover
				rdb.HSet(ctx, ledger.Key(f.org, "export"), "position", ledger.NoPosition)
			}
			f.pass(2 * time.Minute) // its lease runs out
			x = f.exporter(dir, 1000)
			if _, err := x.Export(ctx, f.org); err != nil {
				t.Fatalf("round %d, the next process: %v", round, err)
			}
			wantOnce(t, exported(t, dir, f.org), want)
			x.Release(ctx)
		}
		position, err := f.Ledger.Exported(ctx, f.org)
		if lines := exported(t, dir, f.org); err != nil || position != lines[len(lines)-1].LedgerID {
			t.Errorf("position %s, %v", position, err)
		}
	})
}

// TestExportOneAtATime: a second process waits for the first one's lease, and a first process that
// was only stalled does not overwrite what the second wrote.
func TestExportOneAtATime(t *testing.T) {
	ctx := t.Context()
	f, dir := newStill(t, shared(t), budget.Options{}), t.TempDir()
	want := f.charge(3)
	first, second := f.exporter(dir, 0), f.exporter(dir, 0)
	step := func(x *ledger.Exporter, wantN int) {
		t.Helper()
		if n, err := x.Export(ctx, f.org); n != wantN || err != nil {
			t.Fatalf("exported %d, %v, want %d", n, err, wantN)
		}
	}
	step(first, 3)
	want = append(want, f.charge(2)...)
	step(second, 0)
	f.pass(2 * time.Minute)
	second.ForgetOthers()
	first.DieAt(func(where string) error { // stalls while it holds the file
		if where == "writing" {
			second.ForgetOthers()
			f.pass(2 * time.Minute)
			step(second, 0)
		}
		return nil
	})
	step(first, 2)
	f.pass(2 * time.Minute)
	second.ForgetOthers()
	want = append(want, f.charge(1)...)
	step(second, 1)
	first.ForgetOthers()
	first.DieAt(func(string) error { return nil })
	step(first, 0)
	wantOnce(t, exported(t, dir, f.org), want)
}

// TestExportTrims: entries leave Redis only once they are in the files, and a ledger that was
// trimmed too early is detected.
func TestExportTrims(t *testing.T) {
	ctx := t.Context()
	f, dir := newStill(t, shared(t), budget.Options{}), t.TempDir()
	x := f.exporter(dir, 200)
	want := f.charge(1500)
	if n, err := x.Export(ctx, f.org); n != 1500 || err != nil {
		t.Fatal(n, err)
	}
	if n := f.rdb.XLen(ctx, ledger.Key(f.org, "ledger")).Val(); n < 200 || n > 400 {
		t.Errorf("%d entries are left of 1500, want about 200", n)
	}
	want = append(want, f.charge(10)...)
	if n, err := x.Export(ctx, f.org); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	wantOnce(t, exported(t, dir, f.org), want)
	if n := x.Gaps(); n != 0 {
		t.Errorf("%v gaps", n)
	}
	f.charge(5)
	f.rdb.XTrimMaxLen(ctx, ledger.Key(f.org, "ledger"), 2)
	if _, err := x.Export(ctx, f.org); err != nil {
		t.Fatal(err)
	}
	if n := x.Gaps(); n != 1 {
		t.Errorf("%v gaps noticed, want 1", n)
	}
}

// TestExportKilled kills exporting processes while calls settle.
func TestExportKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f, dir := newFixture(t, server.Client(), budget.Options{}), t.TempDir()
	written := func() (lines int) {
		paths, err := filepath.Glob(filepath.Join(dir, f.org, "*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines += strings.Count(string(text), "\n")
		}
		return lines
	}
	var want []string
	for round := range randtest.Rounds(6, 300) {
		had := written()
		child := redistest.Process(t, os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), "LEDGER_TEST_EXPORT="+server.Addr, "LEDGER_TEST_DIR="+dir, "LEDGER_TEST_ORG="+f.org)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(time.Duration(60+37*round%90) * time.Millisecond)
		// Each fourth process lives until it has written, however slowly it started.
		late := end.Add(time.Minute)
		for time.Now().Before(end) || round%4 == 3 && written() == had && time.Now().Before(late) {
			want = append(want, f.charge(20)...)
		}
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	before := written() // the last line may be torn; the next export repairs it
	x := f.exporter(dir, 0)
	redistest.Eventually(t, "all entries are exported", func() bool { // once the lease of the last process has ended
		x.ForgetOthers()
		if _, err := x.Export(t.Context(), f.org); err != nil {
			t.Fatal(err)
		}
		return written() >= len(want)
	})
	t.Logf("%d entries, %d of them by processes that were killed", len(want), before)
	if before == 0 {
		t.Error("no process lived long enough")
	}
	wantOnce(t, exported(t, dir, f.org), want)
}

// TestExportLongLine: the last line may have any length.
func TestExportLongLine(t *testing.T) {
	f, dir := newStill(t, shared(t), budget.Options{}), t.TempDir()
	x := f.exporter(dir, 0)
	var want []string
	for i := range 3 {
		c := f.call()
		c.Model = strings.Repeat(strconv.Itoa(i), 5*ledger.TailSize)
		h, err := f.Hold(t.Context(), budget.Terms{Call: c, Max: budget.Amounts{Cost: 5}})
		if err != nil {
			t.Fatal(err)
		}
		f.settle(t.Context(), h, 5)
		want = append(want, c.ID)
		if _, err := x.Export(t.Context(), f.org); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, f.org, ledger.DayOf(ledger.Entry{LedgerID: strconv.FormatInt(time.Now().UnixMilli(), 10) + "-0"})+".jsonl")
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(strings.Repeat("x", 3*ledger.TailSize)); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	if _, err := x.Export(t.Context(), f.org); err != nil {
		t.Fatal(err)
	}
	want = append(want, f.charge(1)...)
	if _, err := x.Export(t.Context(), f.org); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, f.org, "*.jsonl"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(string(text), "\n")
		if lines != len(want) || !strings.HasSuffix(string(text), "\n") {
			t.Errorf("%d lines, want %d", lines, len(want))
		}
	}
}

// TestSpreadExport: every entry of every part is in one file, once.
func TestSpreadExport(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		parts, dir := 0, t.TempDir()
		f := newStill(t, rdb, budget.Options{Spread: func(string) budget.Spread {
			return budget.Spread{Parts: parts, By: budget.User}
		}})
		var ids []string
		x := f.exporter(dir, 0)
		for _, parts = range []int{5, 2, 9} {
			for user := range 30 {
				c := f.call()
				c.User = fmt.Sprint("user", user)
				h, err := f.Hold(t.Context(), budget.Terms{Call: c, Max: budget.Amounts{Cost: 10}})
				if err != nil {
					t.Fatal(err)
				}
				f.settle(t.Context(), h, 7)
				ids = append(ids, c.ID)
			}
			if _, err := x.Export(t.Context(), f.org); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, e := range exported(t, dir, f.org) {
			got = append(got, e.ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
			t.Errorf("got %d lines of %d calls, want %d", len(got), len(slices.Compact(got)), len(ids))
		}
	})
}
