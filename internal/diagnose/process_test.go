package diagnose

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// process returns a running llmguard with this readiness and these metrics, one to a line.
func process(t *testing.T, status int, ready, metrics string) *Process {
	t.Helper()
	for _, sound := range []string{"config_hash 7", "config_last_reload_successful 1"} {
		if name, _, _ := strings.Cut(sound, " "); !strings.Contains(metrics, name) {
			metrics = sound + "\n" + metrics
		}
	}
	text := "llmguard_" + strings.ReplaceAll(strings.TrimSpace(metrics), "\n", "\nllmguard_") + "\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprint(w, text)
			return
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, ready)
	}))
	t.Cleanup(srv.Close)
	p := AskProcess(t.Context(), srv.Client(), srv.URL, "")
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	return p
}

// summary returns findings in short form, and reports those without a fix, unless they are OK.
func summary(t *testing.T, found []Finding) string {
	t.Helper()
	var out []string
	for _, f := range found {
		out = append(out, string(f.Level)+" "+f.What)
		if (f.Fix == "") != (f.Level == OK) {
			t.Errorf("got %+v, want a fix, unless it is ok", f)
		}
	}
	return strings.Join(out, " | ")
}

// matches compares a summary with one that has a part of each text.
func matches(got, want string) bool {
	return slices.EqualFunc(strings.Split(got, " | "), strings.Split(want, " | "), func(got, want string) bool {
		level, what, _ := strings.Cut(want, " ")
		return strings.HasPrefix(got, level) && strings.Contains(got, what)
	})
}

// TestLook: each fault that a process reports is found, and nothing else.
func TestLook(t *testing.T) {
	waits := `queue_waiting_jobs{pool="p",class="async"} 5` + "\n" + `queue_oldest_seconds{pool="p",class="async"} `
	for _, tc := range []struct{ want, metrics string }{
		{"ok ready, no problems found", ""},
		{"warning restart is needed for 2 fields", "config_restart_needed 2"},
		{"error its configuration file is invalid", "config_last_reload_successful 0"},
		{"ok no problems found", `pricing_age_seconds{source="x"} 5184001`},
		{"warning checked 91 days ago", `pricing_age_seconds{source="x"} 7862401`},
		{"error unavailable for 1 org, whose calls are admitted within local shares", `guard_store_away_orgs{mode="local"} 1
guard_store_away_orgs{mode="deny"} 0`},
		{"error unavailable for 2 orgs, whose calls are refused", `guard_store_away_orgs{mode="deny"} 2`},
		{"error unavailable for 1 org, whose calls are admitted unchecked", `guard_store_away_orgs{mode="allow"} 1`},
		{"error unavailable for 1 org, whose calls are treated as", "guard_store_away_orgs 1"},
		{"warning it holds 3 settlements", "budget_journal_records 3"},
		{"error lost its data", "budget_store_emptied_total 1"},
		{"warning 1 hold expired", "budget_expired_holds_total 1"},
		{"warning 3 settlements could not be written", "guard_settle_errors_total{kind=\"a\"} 1\nguard_settle_errors_total{kind=\"b\"} 2"},
		{"error entries may be permanently missing", "budget_export_gaps_total 1"},
		{"warning 2 jobs failed", `queue_dead_letters{pool="p"} 2`},
		{"warning 1 delivery of webhooks", `webhook_dead_total{reason="exhausted"} 1`},
		{"warning 2 deliveries of webhooks", `webhook_dead_total{reason="exhausted"} 2`},
		{"warning runs at 50 %", `quota_pace_ratio{pool="p"} 0.5`},
		{"error invalid | error missing", "config_last_reload_successful 0\nbudget_export_gaps_total 1"},

		// A provider that allows less than configured; more, or none, is fine.
		{"ok ready", `quota_limit{pool="p",limit="rpm"} 600` + "\n" + `quota_limit{pool="q",limit="rpm"} 60`},
		{"ok ready", `quota_limit{pool="p",limit="rpm"} 0`},
		{"warning allows 60 rpm, not the configured 500", `quota_limit{pool="p",limit="rpm"} 60
quota_limit{pool="p",limit="tpm"} 100000`},
		{"warning 1000 tpm, not the configured 100000", `quota_limit{pool="p",limit="tpm"} 1000`},

		// Waiting jobs are a fault only if they wait long, and each pool is checked.
		{"ok ready", waits + "119"},
		{"error 5 jobs waiting, the oldest for 2m, and none running", waits + `120` + "\n" + `queue_claimed_jobs{pool="p"} 0`},
		{"warning because limits pause 2 subjects", waits + `120` + "\n" + `queue_parked_subjects{pool="p"} 2`},
		{"warning the oldest for 2m", waits + `120` + "\n" + `queue_claimed_jobs{pool="p"} 3` + "\n" + `queue_parked_subjects{pool="p"} 2`},
		{"warning blocks calls for another 12s", waits + `5` + "\n" + `quota_blocked_seconds{pool="p"} 12`},
		{"ok ready", `quota_blocked_seconds{pool="p"} 12`},
		{"error pool a: 2 jobs waiting, the oldest for 10m | error pool b: 1 job waiting", `queue_waiting_jobs{pool="b",class="batch"} 1
queue_waiting_jobs{pool="a",class="async"} 1
queue_waiting_jobs{pool="a",class="batch"} 1
queue_oldest_seconds{pool="a",class="async"} 10
queue_oldest_seconds{pool="a",class="batch"} 600
queue_oldest_seconds{pool="b",class="batch"} 600`},
	} {
		var r Report
		process(t, 200, "ready", tc.metrics).Look(&r, map[string]Quota{"p": {"rpm": 500, "tpm": 100_000}})
		if got := summary(t, r.Findings); !matches(got, tc.want) {
			t.Errorf("%s: got %s, want %s", tc.metrics, got, tc.want)
		}
		if !strings.HasPrefix(r.Findings[0].Area, "process 127.0.0.1:") {
			t.Errorf("got the area %s, want process 127.0.0.1:...", r.Findings[0].Area)
		}
	}
	for ready, status := range map[string]int{"shutting down": 503, "ready, but redis does not answer: only calls of acme are accepted": 200} {
		var r Report
		process(t, status, ready, "").Look(&r, nil)
		if got := summary(t, r.Findings); !matches(got, "error "+ready) || strings.Contains(got, "not ready") != (status == 503) {
			t.Errorf("got %s, want an error with %s", got, ready)
		}
	}
}

// TestAskOthers: a server that is not an admin listener, or none, is an error that names the URL.
func TestAskOthers(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"no metrics": http.NotFound,
		"another's":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "go_goroutines 7") },
		"no text":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "<html>{{{") },
		"a failure":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "llmguard_config_hash 7", 500) },
	} {
		srv := httptest.NewServer(h)
		for _, state := range []string{name, "nothing listens any more"} {
			var r Report
			AskProcess(t.Context(), srv.Client(), srv.URL, "").Look(&r, nil)
			if got := summary(t, r.Findings); !matches(got, "error does not answer") || !strings.Contains(got, srv.URL) {
				t.Errorf("%s: got %s, want an error that names %s", state, got, srv.URL)
			}
			srv.Close()
		}
	}
}

// TestSameFile: a single process is not compared; of several, each that answers is.
func TestSameFile(t *testing.T) {
	one, other := process(t, 200, "ready", ""), process(t, 200, "ready", "config_hash 8")
	away := &Process{Err: http.ErrServerClosed}
	for _, tc := range []struct {
		all  []*Process
		want string
	}{
		{[]*Process{one}, ""},
		{[]*Process{one, away}, ""},
		{[]*Process{one, one}, "ok the same configuration file"},
		{[]*Process{one, away, one, other}, "warning " + one.URL + " and " + other.URL + " run with different configuration files"},
	} {
		var r Report
		SameFile(&r, tc.all)
		if got := summary(t, r.Findings); got != tc.want && !matches(got, tc.want) {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// TestSortAndCount: the most severe comes first; equals keep their order.
func TestSortAndCount(t *testing.T) {
	var list []Finding
	for i, level := range []Level{OK, Warning, Error, Warning, Error, OK} {
		list = append(list, Finding{Level: level, What: string(rune('a' + i)), Fix: map[bool]string{true: "x"}[level != OK]})
	}
	Sort(list)
	if got := summary(t, list); got != "error c | error e | warning b | warning d | ok a | ok f" {
		t.Errorf("got %s", got)
	}
	if e, other := Count(list, Error), Count(list, "other"); e != 2 || other != 0 {
		t.Errorf("got %d errors and %d others, want 2 and 0", e, other)
	}
}
