package diagnose

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llmguard/llmguard/internal/figures"
)

// Process is what a running llmguard reports on its admin listener.
type Process struct {
	URL     string
	Ready   bool
	Says    string // body of /readyz
	Err     error  // it does not answer; the other fields are empty
	samples map[string][]*dto.Metric
}

// AskProcess reads /readyz and /metrics below a URL; token is for the metrics, if they require
// one.
func AskProcess(ctx context.Context, client *http.Client, url, token string) *Process {
	p := &Process{URL: url}
	p.Err = p.ask(ctx, client, token)
	return p
}

func (p *Process) ask(ctx context.Context, client *http.Client, token string) error {
	status, text, err := get(ctx, client, p.URL+"/readyz", "")
	if err != nil {
		return err
	}
	p.Ready, p.Says = status == http.StatusOK, strings.TrimSpace(text)
	status, text, err = get(ctx, client, p.URL+"/metrics", token)
	if err != nil {
		return err
	}
	if status == http.StatusUnauthorized || status == http.StatusTooManyRequests {
		return fmt.Errorf("%s/metrics rejects the admin.metrics_token of this configuration (status %d)", p.URL, status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if status != http.StatusOK || err != nil || families["llmguard_config_hash"] == nil {
		return fmt.Errorf("the server at %s is not llmguard's admin listener", p.URL)
	}
	p.samples = map[string][]*dto.Metric{}
	for name, f := range families {
		p.samples[strings.TrimPrefix(name, "llmguard_")] = f.GetMetric()
	}
	return nil
}

// Ready returns an error unless the process below a URL is ready.
func Ready(ctx context.Context, client *http.Client, url string) error {
	status, _, err := get(ctx, client, url+"/readyz", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s is not ready: %d %s", url, status, http.StatusText(status))
	}
	return err
}

// ServesCalls reports whether a URL is the root of a proxy's listener for callers.
func ServesCalls(ctx context.Context, client *http.Client, url string) bool {
	_, text, err := get(ctx, client, url+"/", "")
	return err == nil && strings.HasPrefix(text, `{"object":"llmguard"`)
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
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func (p *Process) sum(name string) float64 {
	var total float64
	for _, m := range p.samples[name] {
		total += value(m)
	}
	return total
}

func (p *Process) by(name, key string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range p.samples[name] {
		out[label(m, key)] += value(m)
	}
	return out
}

// Hash returns a hash that identifies the process's configuration file.
func (p *Process) Hash() float64 { return p.sum("config_hash") }

// Deployment returns a number for the place of the process's data; 0 for processes of older versions.
func (p *Process) Deployment() float64 { return p.sum("config_deployment") }

// Quota is the configured quota of a pool, by the name of its rate; 0 means unlimited.
type Quota map[string]int64

// Look adds problems with the process, and with shared state as far as it reports that.
// quotas are the configured quotas, by pool.
func (p *Process) Look(r *Report, quotas map[string]Quota) {
	_, host, _ := strings.Cut(p.URL, "://")
	l := &look{p, Report{Area: "process " + host}}
	if p.Err != nil {
		l.Add(Error, "does not answer: "+p.Err.Error(),
			"Check that it is running (the end of its log says why it stopped) and that this is its admin.listen.")
	} else {
		l.itself()
		l.money()
		l.queues(quotas)
		l.count(Warning, "webhook_dead_total", "llmguard gave up on %s of webhooks", "delivery",
			"`llmguard webhooks dead` shows which and why. Fix the target, then replay them.")
	}
	if len(l.Findings) == 0 {
		l.Add(OK, "ready, no problems found", "")
	}
	r.Findings = append(r.Findings, l.Findings...)
}

type look struct {
	*Process
	Report
}

// count adds a finding if the sum of a metric is not 0. If it names a thing, the text has how many of them there are.
func (l *look) count(level Level, metric, what, thing, fix string) {
	n := l.sum(metric)
	if thing != "" {
		what = fmt.Sprintf(what, many(n, thing))
	}
	if n > 0 {
		l.Add(level, what, fix)
	}
}

func (l *look) itself() {
	switch {
	case !l.Ready:
		l.Add(Error, "not ready: "+l.Says, "Load balancers send it no calls. Check its log.")
	case l.Says != "ready":
		l.Add(Error, l.Says, "Restore Redis. Calls admitted in the meantime are charged then.")
	}
	if len(l.samples["config_last_reload_successful"]) > 0 && l.sum("config_last_reload_successful") == 0 {
		l.Add(Error, "its configuration file is invalid: it still runs the previous one, and a restart would fail",
			"Find the mistakes with `llmguard check`, fix them and reload.")
	}
	l.count(Warning, "config_restart_needed", "a restart is needed for %s of its configuration file", "field",
		"Restart it. Its log names the fields.")
	if age := seconds(l.sum("pricing_age_seconds")); age > OldPrices {
		l.Add(Warning, fmt.Sprintf("its oldest price was last checked %d days ago", age/(24*time.Hour)),
			"Update llmguard, or run `llmguard prices update litellm`.")
	}
}

func (l *look) money() {
	l.outage()
	l.count(Warning, "budget_journal_records", "it holds %s that redis does not have yet", "settlement",
		"They are written within seconds once Redis is available. If it already is, check the log for refused writes. "+
			"They are in store.journal_dir if that is set (do not delete it), otherwise in the memory of the process.")
	l.count(Error, "budget_store_emptied_total",
		"redis lost its data while this process was running: limits are closed for the length of their windows", "",
		"Restore the append-only file or a backup, or accept the loss: `llmguard limits reopen --all`. Find out who ran "+
			"FLUSHALL.")
	l.count(Warning, "budget_expired_holds_total", "since its start, %s expired and cost the full estimate", "hold",
		"A process died or stalled: check for out-of-memory kills. `llmguard usage entries` lists the calls as expired.")
	l.count(Warning, "guard_settle_errors_total", "%s could not be written to redis immediately", "settlement",
		"Check Redis's latency and log.")
	l.count(Error, "budget_export_gaps_total", "ledger entries may be permanently missing from the export files", "",
		"The disk of ledger.export_dir was not writable for too long. Check it, or raise ledger.max_entries.")
}

func (l *look) outage() {
	const stop = "Restore Redis. To refuse their calls until then, set on_store_failure: deny."
	away := l.by("guard_store_away_orgs", "mode")
	for _, mode := range slices.Sorted(maps.Keys(away)) {
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
		l.Add(Error, fmt.Sprintf("redis is unavailable for %s, whose calls are %s", many(n, "org"), calls), fix)
	}
}

// late is the wait from which waiting jobs are reported.
const late = 2 * time.Minute

func (l *look) queues(quotas map[string]Quota) {
	oldest := map[string]time.Duration{}
	for _, m := range l.samples["queue_oldest_seconds"] {
		pool := label(m, "pool")
		oldest[pool] = max(oldest[pool], seconds(value(m)))
	}
	waiting, running := l.by("queue_waiting_jobs", "pool"), l.by("queue_claimed_jobs", "pool")
	blocked, parked := l.by("quota_blocked_seconds", "pool"), l.by("queue_parked_subjects", "pool")
	for _, pool := range slices.Sorted(maps.Keys(waiting)) {
		jobs := many(waiting[pool], "job")
		wait := fmt.Sprintf("pool %s: %s waiting, the oldest for %s", pool, jobs, figures.Lasting(oldest[pool]))
		switch {
		case waiting[pool] == 0:
		case blocked[pool] > 0:
			l.Add(Warning, fmt.Sprintf("pool %s: the provider blocks calls for another %s; %s waiting", pool,
				figures.Lasting(seconds(blocked[pool])), jobs),
				"Check whether its quota is smaller than configured, or shared with others.")
		case oldest[pool] < late:
		case running[pool] == 0 && parked[pool] == 0:
			l.Add(Error, wait+", and none running",
				"Check that a worker is running with the same configuration and Redis.")
		case running[pool] == 0:
			l.Add(Warning, wait+", because limits pause "+many(parked[pool], "subject"),
				"`llmguard queue` shows them. Raise the limit, or let them wait.")
		default:
			l.Add(Warning, wait, "Add workers or quota: compare llmguard_quota_used with llmguard_quota_limit.")
		}
	}
	l.quotas(quotas)
	l.count(Warning, "queue_dead_letters", "%s failed for reasons other than the request", "job",
		"`llmguard queue dead` shows why; `llmguard jobs replay` runs one again.")
}

func (l *look) quotas(quotas map[string]Quota) {
	for _, m := range l.samples["quota_limit"] {
		pool, which, now := label(m, "pool"), label(m, "limit"), value(m)
		configured := float64(quotas[pool][which])
		if now > 0 && configured > now {
			l.Add(Warning, fmt.Sprintf("pool %s: the provider allows %.0f %s, not the configured %.0f", pool, now, which,
				configured), "The smaller value applies. Set it in the file, or request more from the provider.")
		}
	}
	paces := l.by("quota_pace_ratio", "pool")
	for _, pool := range slices.Sorted(maps.Keys(paces)) {
		if pace := paces[pool]; pace < 0.9 {
			l.Add(Warning, fmt.Sprintf("pool %s runs at %.0f %% of its quota, because the provider recently refused calls", pool,
				100*pace), "It recovers automatically. If this happens again, lower the configured quota.")
		}
	}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func many(n float64, thing string) string { return figures.Plural(int64(math.Round(n)), thing) }

// SameFile checks that all processes run the same configuration file.
func SameFile(r *Report, all []*Process) {
	all = slices.DeleteFunc(slices.Clone(all), func(p *Process) bool { return p.Err != nil })
	if len(all) < 2 {
		return
	}
	for _, p := range all {
		if p.Hash() != all[0].Hash() {
			r.Add(Warning, fmt.Sprintf("%s and %s run with different configuration files", all[0].URL, p.URL),
				"Reload the processes that have the older file.")
			return
		}
	}
	r.Add(OK, "all processes run with the same configuration file", "")
}
