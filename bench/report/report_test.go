package report

import (
	"strings"
	"testing"
	"time"
)

func sample(target string, round int, cpu, redis time.Duration) Sample {
	return Sample{
		Cell: "300 B, new", Target: target, Round: round, Calls: 10, PerSecond: 1000,
		CPU: cpu * time.Microsecond, Redis: redis * time.Microsecond, P50: time.Millisecond,
		P999: 3 * time.Millisecond,
	}
}

// Ratios are computed within rounds, so that slow periods of the machine cancel out.
func TestRowsPairRounds(t *testing.T) {
	table := Table{Reference: "ref"}
	for _, s := range []Sample{
		sample("ours", 1, 20, 10), sample("ref", 1, 10, 10),
		sample("ref", 2, 100, 100), sample("ours", 2, 200, 100),
		sample("ours", 3, 30, 0), sample("ref", 3, 10, 10),
	} {
		table.Add(s)
	}
	rows := table.Rows()
	if len(rows) != 2 || rows[0].Target != "ours" || rows[0].Rounds != 3 {
		t.Fatalf("rows %+v", rows)
	}
	if got := rows[0]; got.Ratio != 1.5 || got.OwnRatio != 2 || got.CPU != 30*time.Microsecond {
		t.Errorf("ours: %+v", got)
	}
	if got := rows[1]; got.Ratio != 1 || got.CPU != 10*time.Microsecond {
		t.Errorf("ref: %+v", got)
	}
}

func TestRowWithoutReference(t *testing.T) {
	table := Table{Reference: "ref"}
	table.Add(sample("ours", 1, 20, 0))
	table.Add(sample("ours", 2, 40, 0))
	if got := table.Rows()[0]; got.Ratio != 0 || got.CPU != 30*time.Microsecond {
		t.Errorf("row %+v", got)
	}
}

func TestOutput(t *testing.T) {
	table := Table{Reference: "ref"}
	table.Add(sample("ref", 1, 10, 5))
	var md, bench strings.Builder
	if err := table.Markdown(&md); err != nil {
		t.Fatal(err)
	}
	if err := table.Benchstat(&bench); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(md.String(), "| 300 B, new | ref | 10 | 5 | 15 | 1.00 | 1.00 | 1000 | 1.00 | 0.00 | 3.00 | 0 |") {
		t.Errorf("markdown:\n%s", md.String())
	}
	const want = "BenchmarkCall/prompt=300_B_new/target=ref 10 1000000 ns/op 10.00 cpu-us/op 5.00 redis-us/op 1000000 p50-ns 0 p99-ns 3000000 p99.9-ns 1000 calls/s\n"
	if bench.String() != want {
		t.Errorf("benchstat:\n%s", bench.String())
	}
}
