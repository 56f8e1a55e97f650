package diagnose_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/diagnose"
)

// admin returns an admin listener with this readiness and these metrics.
func admin(t *testing.T, status int, ready, metrics string) *diagnose.Process {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = fmt.Fprintln(w, metrics)
			return
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintln(w, ready)
	}))
	t.Cleanup(srv.Close)
	p, err := diagnose.Ask(t.Context(), srv.Client(), srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// summary returns the findings in short form.
func summary(found []diagnose.Finding) string {
	var out []string
	for _, f := range found {
		out = append(out, string(f.Level)+" "+f.What)
	}
	return strings.Join(out, "; ")
}

const sound = "llmguard_config_hash 7\nllmguard_config_last_reload_successful 1\n"

func TestProcessWithoutRedis(t *testing.T) {
	p := admin(t, 200, "ready, but redis does not answer: only calls of acme are accepted", sound)
	wants(t, p.Look(nil), diagnose.Error, "redis does not answer: only calls of acme")
	p = admin(t, 503, "shutting down", sound)
	wants(t, p.Look(nil), diagnose.Error, "not ready: shutting down")
}

// All of several faults are found, and the process is identified by its address.
func TestProcessWithSeveralFaults(t *testing.T) {
	p := admin(t, 200, "ready", `llmguard_config_hash 7
llmguard_config_last_reload_successful 0
llmguard_budget_export_gaps_total 1
llmguard_guard_settle_errors_total{kind="a"} 1
llmguard_guard_settle_errors_total{kind="b"} 2`)
	found := p.Look(nil)
	wants(t, found, diagnose.Error, "its configuration file is invalid")
	wants(t, found, diagnose.Error, "entries may be permanently missing")
	wants(t, found, diagnose.Warning, "3 settlements could not be written")
	if len(found) != 3 || !strings.HasPrefix(found[0].Area, "process 127.0.0.1:") {
		t.Errorf("got %+v, want three of process 127.0.0.1:...", found)
	}
}

// Waiting jobs are a fault only if they wait long, and each pool is checked.
func TestWaitingJobs(t *testing.T) {
	pool := func(id string, waiting, oldest, running, parked, blocked int) string {
		return fmt.Sprintf(`llmguard_queue_waiting_jobs{pool="%[1]s",class="async"} %[2]d
llmguard_queue_oldest_seconds{pool="%[1]s",class="async"} %[3]d
llmguard_queue_claimed_jobs{pool="%[1]s"} %[4]d
llmguard_queue_parked_subjects{pool="%[1]s"} %[5]d
llmguard_quota_blocked_seconds{pool="%[1]s"} %[6]d
`, id, waiting, oldest, running, parked, blocked)
	}
	for name, tc := range map[string]struct {
		metrics string
		level   diagnose.Level
		what    string
	}{
		"nothing waits":     {pool("p", 0, 0, 0, 0, 0), diagnose.OK, "ready"},
		"for a short time":  {pool("p", 3, 119, 0, 0, 0), diagnose.OK, "ready"},
		"nothing runs":      {pool("p", 2, 180, 0, 0, 0), diagnose.Error, "3m0s, and none running"},
		"limits pause":      {pool("p", 2, 180, 0, 1, 0), diagnose.Warning, "limits pause 1 subject"},
		"too few workers":   {pool("p", 2, 180, 1, 1, 0), diagnose.Warning, "2 jobs waiting, the oldest for 3m0s"},
		"the provider":      {pool("p", 2, 5, 0, 0, 12), diagnose.Warning, "blocks calls for another 12s"},
		"blocked, and none": {pool("p", 0, 0, 0, 0, 12), diagnose.OK, "ready"},
	} {
		only(t, name, admin(t, 200, "ready", sound+tc.metrics).Look(nil), tc.level, tc.what)
	}
}

// only checks that there is a single finding, of a level and with a text.
func only(t *testing.T, name string, found []diagnose.Finding, level diagnose.Level, what string) {
	t.Helper()
	if len(found) != 1 || found[0].Level != level || !strings.Contains(found[0].What, what) ||
		(found[0].Fix == "") != (level == diagnose.OK) {
		t.Errorf("%s: got %+v, want %s %q, with advice unless it is ok", name, found, level, what)
	}
}

func TestEachPoolIsLookedAt(t *testing.T) {
	found := admin(t, 200, "ready", sound+`llmguard_queue_waiting_jobs{pool="b",class="batch"} 1
llmguard_queue_waiting_jobs{pool="a",class="async"} 1
llmguard_queue_waiting_jobs{pool="a",class="batch"} 1
llmguard_queue_oldest_seconds{pool="a",class="async"} 10
llmguard_queue_oldest_seconds{pool="a",class="batch"} 600
llmguard_queue_oldest_seconds{pool="b",class="batch"} 600`).Look(nil)
	if len(found) != 2 || !strings.Contains(found[0].What, "pool a: 2 jobs waiting, the oldest for 10m0s") ||
		!strings.Contains(found[1].What, "pool b") {
		t.Errorf("got %s, want both pools, in order", summary(found))
	}
}

// A provider that allows less than configured is reported; one that allows more, or a pool
// without a limit, is not.
func TestQuotasOfProviders(t *testing.T) {
	limits := func(rpm, tpm int) string {
		return sound + fmt.Sprintf(`llmguard_quota_limit{pool="p",limit="rpm"} %d
llmguard_quota_limit{pool="p",limit="tpm"} %d
`, rpm, tpm)
	}
	for _, tc := range []struct {
		metrics string
		quota   diagnose.Quota
		level   diagnose.Level
		what    string
	}{
		{limits(500, 9000), diagnose.Quota{RPM: 500, TPM: 9000}, diagnose.OK, "ready"},
		{limits(600, 9999), diagnose.Quota{RPM: 500, TPM: 9000}, diagnose.OK, "ready"},
		{limits(60, 9000), diagnose.Quota{}, diagnose.OK, "ready"},
		{limits(0, 0), diagnose.Quota{RPM: 500, TPM: 9000}, diagnose.OK, "ready"},
		{limits(500, 1000), diagnose.Quota{RPM: 500, TPM: 9000}, diagnose.Warning, "1000 tpm, not the configured 9000"},
		{limits(50, 9000), diagnose.Quota{RPM: 500, TPM: 9000}, diagnose.Warning, "50 rpm, not the configured 500"},
	} {
		found := admin(t, 200, "ready", tc.metrics).Look(map[string]diagnose.Quota{"p": tc.quota})
		only(t, fmt.Sprintf("%+v", tc.quota), found, tc.level, tc.what)
	}
}

// A server that is not an admin listener is an error that names the URL.
func TestAskOfSomethingElse(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"no metrics":      http.NotFound,
		"another's":       func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "go_goroutines 7") },
		"no text of them": func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "<html>{{{") },
		"a failure": func(w http.ResponseWriter,
			_ *http.Request,
		) {
			http.Error(w, sound, http.StatusInternalServerError)
		},
	} {
		srv := httptest.NewServer(h)
		_, err := diagnose.Ask(t.Context(), srv.Client(), srv.URL, "")
		srv.Close()
		if err == nil || !strings.Contains(err.Error(), srv.URL) {
			t.Errorf("%s: got %v, want an error that names %s", name, err, srv.URL)
		}
		_, err = diagnose.Ask(t.Context(), srv.Client(), srv.URL, "")
		if err == nil {
			t.Errorf("%s: nothing listens any more: got no error", name)
		}
	}
}

// A single process is not compared; of several, each is.
func TestFilesOfSeveralProcesses(t *testing.T) {
	one := admin(t, 200, "ready", sound)
	other := admin(t, 200, "ready", "llmguard_config_hash 8\n")
	found := diagnose.SameFile([]*diagnose.Process{one})
	if len(found) > 0 {
		t.Errorf("of one: got %+v, want nothing", found)
	}
	wants(t, diagnose.SameFile([]*diagnose.Process{one, one}), diagnose.OK, "the same configuration file")
	found = diagnose.SameFile([]*diagnose.Process{one, one, other})
	wants(t, found, diagnose.Warning, "different configuration files")
	if !strings.Contains(found[0].What, one.URL) || !strings.Contains(found[0].What, other.URL) {
		t.Errorf("got %q, want both addresses", found[0].What)
	}
}

// The most severe comes first; equals keep their order.
func TestSortAndCount(t *testing.T) {
	list := []diagnose.Finding{
		{Level: diagnose.OK, What: "a"},
		{Level: diagnose.Warning, What: "b"},
		{Level: diagnose.Error, What: "c"},
		{Level: diagnose.Warning, What: "d"},
		{Level: diagnose.Error, What: "e"},
		{Level: diagnose.OK, What: "f"},
	}
	diagnose.Sort(list)
	if got := summary(list); got != "error c; error e; warning b; warning d; ok a; ok f" {
		t.Errorf("got %s", got)
	}
	for level, want := range map[diagnose.Level]int{diagnose.Error: 2, diagnose.Warning: 2, diagnose.OK: 2, "other": 0} {
		got := diagnose.Count(list, level)
		if got != want {
			t.Errorf("Count of %s: got %d, want %d", level, got, want)
		}
	}
}
