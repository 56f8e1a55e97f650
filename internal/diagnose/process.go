package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Process is what a running llmguard reports on its admin listener.
type Process struct {
	URL     string
	Ready   bool
	Says    string // body of /readyz
	samples map[string][]*dto.Metric
}

// ProcessArea returns the area of findings about the process at a URL.
func ProcessArea(url string) string {
	_, host, _ := strings.Cut(url, "://")
	return "process " + host
}

// Ask reads /readyz and /metrics below a URL; token is that of the metrics, if they require
// one.
func Ask(ctx context.Context, client *http.Client, url, token string) (*Process, error) {
	p := &Process{URL: url}
	status, text, err := get(ctx, client, url+"/readyz", "")
	if err != nil {
		return nil, err
	}
	p.Ready, p.Says = status == http.StatusOK, strings.TrimSpace(text)
	status, text, err = get(ctx, client, url+"/metrics", token)
	if err != nil {
		return nil, err
	}
	if status == http.StatusUnauthorized || status == http.StatusTooManyRequests {
		return nil, fmt.Errorf("%s/metrics rejects the admin.metrics_token of this configuration (status %d)", url, status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if status != http.StatusOK || err != nil || families["llmguard_config_hash"] == nil {
		return nil, fmt.Errorf("the server at %s is not llmguard's admin listener", url)
	}
	p.samples = map[string][]*dto.Metric{}
	for name, f := range families {
		p.samples[strings.TrimPrefix(name, "llmguard_")] = f.GetMetric()
	}
	return p, nil
}

func get(ctx context.Context, client *http.Client, url, token string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	return resp.StatusCode, string(text), err
}

// value returns a sample's value, whatever its type.
func value(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Untyped.GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// sum returns the sum of a metric's samples.
func (p *Process) sum(name string) float64 {
	var total float64
	for _, m := range p.samples[name] {
		total += value(m)
	}
	return total
}

// by returns a metric's sums by one label.
func (p *Process) by(name, key string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range p.samples[name] {
		out[label(m, key)] += value(m)
	}
	return out
}

// Hash returns a hash that identifies the process's configuration file.
func (p *Process) Hash() float64 { return p.sum("config_hash") }

// Look returns problems with the process, and with shared state as far as it reports that.
// quotas are the configured quotas, by pool.
func (p *Process) Look(quotas map[string]Quota) []Finding {
	l := &look{p: p, area: ProcessArea(p.URL)}
	l.itself()
	l.money()
	l.queues(quotas)
	l.events()
	if len(l.out) == 0 {
		l.add(OK, "ready, no problems found", "")
	}
	return l.out
}

// Quota is the configured quota of a pool; 0 means unlimited.
type Quota struct{ RPM, TPM int64 }

// look collects findings about a process.
type look struct {
	p    *Process
	area string
	out  []Finding
}

func (l *look) add(level Level, what, fix string) {
	l.out = append(l.out, Finding{Area: l.area, Level: level, What: what, Fix: fix})
}

// itself checks the process, its configuration and its prices.
func (l *look) itself() {
	p := l.p
	switch {
	case !p.Ready:
		l.add(Error, "not ready: "+p.Says, "Load balancers send it no calls. Check its log.")
	case p.Says != "ready":
		l.add(Error, p.Says, "Restore Redis. Calls admitted in the meantime are charged then.")
	}
	if len(p.samples["config_last_reload_successful"]) > 0 && p.sum("config_last_reload_successful") == 0 {
		l.add(Error, "its configuration file is invalid: it still runs the previous one, and a restart would fail",
			"Find the mistakes with `llmguard check`, fix them and reload.")
	}
	if n := p.sum("config_restart_needed"); n > 0 {
		l.add(Warning, fmt.Sprintf("a restart is needed for %s of its configuration file", many(n, "field")),
			"Restart it. Its log names the fields.")
	}
	if age := seconds(p.sum("pricing_age_seconds")); age > OldPrices {
		l.add(Warning, fmt.Sprintf("its oldest price was last checked %d days ago", age/(24*time.Hour)),
			"Update llmguard, or run `llmguard prices update litellm`.")
	}
}

// money checks what is held, owed or estimated.
func (l *look) money() {
	p := l.p
	l.outage()
	if n := p.sum("budget_journal_records"); n > 0 {
		l.add(Warning, fmt.Sprintf("it holds %s that redis does not have yet", many(n, "settlement")),
			"They are written within seconds once Redis is available. If it already is, check the log for refused writes. "+
				"They are in store.journal_dir if that is set (do not delete it), otherwise in the memory of the process.")
	}
	if n := p.sum("budget_store_emptied_total"); n > 0 {
		l.add(Error, "redis lost its data while this process was running: limits are closed for the length of their windows",
			"Restore the append-only file or a backup, or accept the loss: `llmguard limits reopen --all`. Find out who ran "+
				"FLUSHALL.")
	}
	if n := p.sum("budget_expired_holds_total"); n > 0 {
		l.add(Warning, fmt.Sprintf("since its start, %s expired and cost the full estimate", many(n, "hold")),
			"A process died or stalled: check for out-of-memory kills. `llmguard usage entries` lists the calls as expired.")
	}
	if n := p.sum("guard_settle_errors_total"); n > 0 {
		l.add(Warning, fmt.Sprintf("%s could not be written to redis immediately", many(n, "settlement")),
			"Check Redis's latency and log.")
	}
	if n := p.sum("budget_export_gaps_total"); n > 0 {
		l.add(Error, "ledger entries may be permanently missing from the export files",
			"The disk of ledger.export_dir was not writable for too long. Check it, or raise ledger.max_entries.")
	}
}

// outage reports the orgs for which the process cannot use Redis, and what happens to their calls.
func (l *look) outage() {
	const stop = "Restore Redis. To refuse their calls until then, set on_store_failure: deny."
	away := l.p.by("guard_store_away_orgs", "mode")
	for _, mode := range sorted(away) {
		n := away[mode]
		if n == 0 {
			continue
		}
		calls, fix := "refused", "Restore Redis."
		switch mode {
		case "local":
			calls, fix = "admitted within local shares of their limits", stop
		case "allow":
			calls, fix = "admitted unchecked", stop
		case "": // a process of an older version
			calls = "treated as their on_store_failure says"
		}
		l.add(Error, fmt.Sprintf("redis is unavailable for %s, whose calls are %s", many(n, "org"), calls), fix)
	}
}

// late is the wait from which waiting jobs are reported.
const late = 2 * time.Minute

// queues checks what is waiting, and why.
func (l *look) queues(quotas map[string]Quota) {
	p := l.p
	oldest := map[string]time.Duration{}
	for _, m := range p.samples["queue_oldest_seconds"] {
		pool := label(m, "pool")
		oldest[pool] = max(oldest[pool], seconds(value(m)))
	}
	waiting, running := p.by("queue_waiting_jobs", "pool"), p.by("queue_claimed_jobs", "pool")
	blocked, parked := p.by("quota_blocked_seconds", "pool"), p.by("queue_parked_subjects", "pool")
	for _, pool := range sorted(waiting) {
		n := waiting[pool]
		switch {
		case n == 0:
		case blocked[pool] > 0:
			l.add(Warning, fmt.Sprintf("pool %s: the provider blocks calls for another %s; %s waiting", pool,
				seconds(blocked[pool]).Round(time.Second), many(n, "job")),
				"Check whether its quota is smaller than configured, or shared with others.")
		case oldest[pool] < late:
		case running[pool] == 0 && parked[pool] == 0:
			l.add(Error, fmt.Sprintf("pool %s: %s waiting, the oldest for %s, and none running", pool, many(n, "job"),
				oldest[pool].Round(time.Second)), "Check that a worker is running with the same configuration and Redis.")
		case parked[pool] > 0 && running[pool] == 0:
			l.add(Warning, fmt.Sprintf("pool %s: %s waiting, the oldest for %s, because limits pause %s", pool, many(n, "job"),
				oldest[pool].Round(time.Second), many(parked[pool], "subject")),
				"`llmguard queue` shows them. Raise the limit, or let them wait.")
		default:
			l.add(Warning, fmt.Sprintf("pool %s: %s waiting, the oldest for %s", pool, many(n, "job"),
				oldest[pool].Round(time.Second)),
				"Add workers or quota: compare llmguard_quota_used with llmguard_quota_limit.")
		}
	}
	l.quotas(quotas)
	if n := p.sum("queue_dead_letters"); n > 0 {
		l.add(Warning, fmt.Sprintf("%s failed for reasons other than the request", many(n, "job")),
			"`llmguard queue dead` shows why; `llmguard jobs replay` runs one again.")
	}
}

// quotas reports providers that allow less than configured.
func (l *look) quotas(quotas map[string]Quota) {
	for _, m := range l.p.samples["quota_limit"] {
		pool, which, now := label(m, "pool"), label(m, "limit"), value(m)
		configured := float64(quotas[pool].RPM)
		if which == "tpm" {
			configured = float64(quotas[pool].TPM)
		}
		if now > 0 && configured > now {
			l.add(Warning, fmt.Sprintf("pool %s: the provider allows %s %s, not the configured %s", pool, plain(now), which,
				plain(configured)), "The smaller value applies. Set it in the file, or request more from the provider.")
		}
	}
	for pool, pace := range l.p.by("quota_pace_ratio", "pool") {
		if pace < 0.9 {
			l.add(Warning, fmt.Sprintf("pool %s runs at %.0f%% of its quota, because the provider recently refused calls", pool,
				100*pace), "It recovers automatically. If this happens again, lower the configured quota.")
		}
	}
}

// events checks webhooks.
func (l *look) events() {
	if n := l.p.sum("webhook_dead_total"); n > 0 {
		l.add(Warning, fmt.Sprintf("llmguard gave up on %s of webhooks", many(n, "delivery")),
			"`llmguard webhooks dead` shows which and why. Fix the target, then replay them.")
	}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// many formats a count.
func many(n float64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		thing = stem + "ie"
	}
	return plain(n) + " " + thing + "s"
}

func plain(n float64) string { return fmt.Sprintf("%d", int64(math.Round(n))) }

func sorted(m map[string]float64) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// SameFile checks that all processes run the same configuration file.
func SameFile(all []*Process) []Finding {
	if len(all) < 2 {
		return nil
	}
	for _, p := range all {
		if p.Hash() != all[0].Hash() {
			return []Finding{{
				Area: "config", Level: Warning,
				What: fmt.Sprintf("%s and %s run with different configuration files", all[0].URL, p.URL),
				Fix:  "Reload the processes that have the older file.",
			}}
		}
	}
	return []Finding{{Area: "config", Level: OK, What: "all processes run with the same configuration file"}}
}

// Sort sorts errors first, then warnings, and otherwise keeps the order.
func Sort(list []Finding) {
	rank := map[Level]int{Error: 0, Warning: 1, OK: 2}
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
}
