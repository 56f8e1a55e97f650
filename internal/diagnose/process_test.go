package diagnose

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// process returns a running llmguard with this readiness and these metrics.
func process(t *testing.T, ready, metrics string) *Process {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/metrics":
			fmt.Fprintln(w, "llmguard_config_hash 7\nllmguard_config_last_reload_successful 1\n"+metrics)
		case ready != "ready":
			http.Error(w, ready, http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, ready)
		}
	}))
	t.Cleanup(srv.Close)
	p, err := Ask(t.Context(), srv.Client(), srv.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLook(t *testing.T) {
	f := func(level Level, want, ready string, metrics ...string) {
		t.Helper()
		text := ""
		for _, m := range metrics {
			text += "llmguard_" + m + "\n"
		}
		found := process(t, ready, text).Look(map[string]Quota{"p": {RPM: 500, TPM: 100_000}})
		if len(found) != 1 || found[0].Level != level || !strings.Contains(found[0].What, want) || level != OK && found[0].Fix == "" {
			t.Errorf("%v: got %+v, want %s %q", metrics, found, level, want)
		}
	}
	f(OK, "no problems found", "ready")
	f(Error, "not ready: redis does not answer", "redis does not answer")
	f(Warning, "2 fields", "ready", "config_restart_needed 2")
	f(OK, "no problems found", "ready", `pricing_age_seconds{source="x"} 5184001`)
	f(Warning, "checked 91 days ago", "ready", `pricing_age_seconds{source="x"} 7862401`)
	f(Error, "unavailable for 1 org, whose calls are admitted within local shares", "ready",
		`guard_store_away_orgs{mode="local"} 1`, `guard_store_away_orgs{mode="deny"} 0`)
	f(Error, "unavailable for 2 orgs, whose calls are refused", "ready", `guard_store_away_orgs{mode="deny"} 2`)
	f(Error, "unavailable for 1 org, whose calls are admitted unchecked", "ready", `guard_store_away_orgs{mode="allow"} 1`)
	f(Error, "unavailable for 1 org, whose calls are treated as", "ready", "guard_store_away_orgs 1")
	f(Warning, "it holds 3 settlements", "ready", "budget_journal_records 3")
	f(Error, "lost its data", "ready", "budget_store_emptied_total 1")
	f(Warning, "1 hold expired", "ready", "budget_expired_holds_total 1")
	f(Warning, "2 jobs failed", "ready", `queue_dead_letters{pool="p"} 2`)
	f(Warning, "1 delivery of webhooks", "ready", `webhook_dead_total{reason="exhausted"} 1`)
	f(Warning, "2 deliveries of webhooks", "ready", `webhook_dead_total{reason="exhausted"} 2`)
	f(Warning, "allows 60 rpm, not the configured 500", "ready", `quota_limit{pool="p",limit="rpm"} 60`, `quota_limit{pool="p",limit="tpm"} 100000`)
	f(Warning, "runs at 50%", "ready", `quota_pace_ratio{pool="p"} 0.5`)

	waits := `queue_waiting_jobs{pool="p",class="async"} 5`
	f(OK, "no problems found", "ready", waits, `queue_oldest_seconds{pool="p",class="async"} 30`)
	f(Error, "none running", "ready", waits, `queue_oldest_seconds{pool="p",class="async"} 300`, `queue_claimed_jobs{pool="p"} 0`)
	f(Warning, "limits pause 2 subjects", "ready", waits, `queue_oldest_seconds{pool="p",class="async"} 300`, `queue_parked_subjects{pool="p"} 2`)
	f(Warning, "the oldest for 5m0s", "ready", waits, `queue_oldest_seconds{pool="p",class="async"} 300`, `queue_claimed_jobs{pool="p"} 3`)
	f(Warning, "blocks calls for another 12s", "ready", waits, `quota_blocked_seconds{pool="p"} 12`)
}

func TestReloadRefusedIsSaid(t *testing.T) {
	p := process(t, "ready", "")
	p.samples["config_last_reload_successful"][0].Untyped.Value = new(float64)
	if found := p.Look(nil); len(found) != 1 || found[0].Level != Error || !strings.Contains(found[0].What, "its configuration file is invalid") {
		t.Errorf("%+v", found)
	}
}

func TestAskOthers(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	if _, err := Ask(t.Context(), srv.Client(), srv.URL, ""); err == nil || !strings.Contains(err.Error(), "not llmguard's admin listener") {
		t.Errorf("%v", err)
	}
}

func TestSameFile(t *testing.T) {
	a, b := process(t, "ready", ""), process(t, "ready", "")
	if found := SameFile([]*Process{a, b}); len(found) != 1 || found[0].Level != OK {
		t.Errorf("%v", found)
	}
	other := 8.0
	b.samples["config_hash"][0].Untyped.Value = &other
	if found := SameFile([]*Process{a, b}); len(found) != 1 || found[0].Level != Warning {
		t.Errorf("%v", found)
	}
}
