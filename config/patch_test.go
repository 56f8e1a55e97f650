package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestNewPartsHaveTheFilesDefaults: an org, a user and a limit created by an administrator have the
// defaults that the file gives to its own.
func TestNewPartsHaveTheFilesDefaults(t *testing.T) {
	cfg := read(t, "store: {on_failure: allow, journal_dir: j}\norgs: [{id: acme, users: [{id: ann, limits: [{name: l, amount: $5, window: 1h}]}]}]")
	org, file := cfg.NewOrg("acme"), cfg.Orgs[0]
	if org.OnStoreFailure != "allow" || org.Weight != file.Weight || org.Hold != file.Hold || !org.RetryStartedJobs {
		t.Errorf("org: got %+v, want the defaults of %+v", org, file)
	}
	user := NewUser("ann")
	if user.ID != "ann" || user.Weight != file.Users[0].Weight {
		t.Errorf("user: got %+v, want the defaults of %+v", user, file.Users[0])
	}
	got, want := NewLimit("ann", "l"), file.Users[0].Limits[0]
	want.Amount, want.Window = Quantity{}, 0
	if got.Subject != want.Subject || got.Only != want.Only || got.Metric != want.Metric || got.Mode != want.Mode {
		t.Errorf("a user's limit: got %+v, want %+v", got, want)
	}
	if got := NewLimit("", "l"); got.Subject != "org" || got.Only != "" {
		t.Errorf("an org's limit: got %+v, want subject org", got)
	}
	if key := NewKey("k"); key.ID != "k" || key.Disabled || key.Concurrency != 0 {
		t.Errorf("key: got %+v", key)
	}
}

// TestPatchKeepsTheRest: fields that a patch does not name stay unchanged.
func TestPatchKeepsTheRest(t *testing.T) {
	org := Org{ID: "acme", Name: "Acme", Weight: 100, Models: []string{"a", "b"}}
	err := Patch(&org, []byte(`{"weight": 7, "models": ["gpt-*"], "max_wait": "5m", "alerts": {"url": "https://a.example/x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if org.Name != "Acme" || org.Weight != 7 || !slices.Equal(org.Models, []string{"gpt-*"}) ||
		org.MaxWait != 5*time.Minute {
		t.Errorf("got %+v", org)
	}
	if got := org.Alerts.URL.Reveal(); got != "https://a.example/x" {
		t.Errorf("alerts: got %q", got)
	}
}

func TestPatchIsStrict(t *testing.T) {
	for _, c := range []struct{ fields, message string }{
		{`{"wieght": 7}`, `unknown field "wieght"; did you mean "weight"?`},
		{`{"weight": 0}`, `weight: must be above 0; leave it out for the default, 100`},
		{`{"weight": 7, "weight": 8}`, `"weight" is set twice; the first is on line 1`},
		{`{"hold": "gro"}`, `hold: expected one of max, agents, grow, got "gro"; did you mean "grow"?`},
		{
			`{"hold": "gro", "over_limit": "no"}`,
			`hold: expected one of max, agents, grow, got "gro"; did you mean "grow"?; over_limit: expected one of wait, refuse, got "no"`,
		},
		{`{"name": "${HOME}"}`, `name: the environment variable HOME is not set; set it, or write ${HOME:-default}`},
		{`["weight"]`, `expected "name: value" lines, got a list`},
	} {
		org := Org{ID: "acme", Weight: 100}
		err := Patch(&org, []byte(c.fields))
		if err == nil || err.Error() != c.message {
			t.Errorf("%s: got %v, want %s", c.fields, err, c.message)
		}
	}
}

func TestPatchLimit(t *testing.T) {
	limit := NewLimit("", "hour")
	err := Patch(&limit, []byte(`{"amount": "$5", "window": "1h", "exact": true}`))
	if err != nil || limit.Amount != (Quantity{N: 5e9, Money: true}) || limit.Window != time.Hour ||
		!limit.Exact {
		t.Errorf("got %+v, %v", limit, err)
	}
	err = Patch(&limit, []byte(`{"amount": 5.5}`))
	if want := `amount: expected money such as "$5.25" or a whole number such as 1500, 150k or 2M, got "5.5"; did you mean "$5.5"?`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = Patch(&limit, []byte(`{"bucket": {"refill": "$1/h"}}`))
	if err != nil || limit.Bucket.Refill.Per != time.Hour {
		t.Errorf("got %+v, %v: a patch may change the refill alone", limit.Bucket, err)
	}
}

// TestCheckOrg: what was assembled from the file and from Redis is checked by the same rules.
func TestCheckOrg(t *testing.T) {
	cfg := read(t, "auth: {peppers: [{id: p, secret: \"${PEPPER}\"}]}")
	hour := Limit{Name: "hour", Subject: "org", Metric: "cost", Mode: "enforce", Amount: Quantity{N: 5e9, Money: true}, Window: time.Hour}
	with := func(change func(*Org)) *Org {
		o := cfg.NewOrg("acme")
		o.Limits = []Limit{hour}
		change(&o)
		return &o
	}
	for _, c := range []struct {
		change func(*Org)
		want   string
	}{
		{func(*Org) {}, ""},
		{func(o *Org) { o.Limits = append(o.Limits, hour) }, `limit hour: name: "hour" is already used`},
		{
			func(o *Org) { o.Limits[0].Calendar = "day" },
			"limit hour: calendar: the limit already has a window",
		},
		{
			func(o *Org) { o.Limits[0].Amount = Quantity{} },
			"limit hour: amount is missing: how much per window",
		},
		{
			func(o *Org) { o.Limits[0].Amount.Money = false },
			"limit hour: amount: metric cost is limited in money",
		},
		{func(o *Org) { o.Limits[0].Window = 0 }, "limit hour: amount of what time?"},
		{func(o *Org) { o.Providers = []string{"house"} }, `providers[0]: there is no provider "house"`},
		{func(o *Org) { o.OnStoreFailure = "local" }, "local needs store.journal_dir"},
		{func(o *Org) { o.GrowStep = 5; o.Hold = "grow" }, "grow_step: must be from 20 to 1M tokens, got 5; leave it out for 800"},
		{func(o *Org) { o.Downgrade = map[string]string{"a": "a"} }, "downgrade.a: "},
		{func(o *Org) { o.MaxPriority, o.ModelPriority = "normal", map[string]string{"gpt-*": "low"} }, ""},
		{
			func(o *Org) { o.MaxPriority, o.ModelPriority = "normal", map[string]string{"gpt-*": "urgent"} },
			`model_priority.gpt-*: must be high, normal or low, not "urgent"`,
		},
		{
			func(o *Org) { o.MaxPriority, o.ModelPriority = "low", map[string]string{"gpt-*": "normal"} },
			"normal is above the org's max_priority, low",
		},
		{
			func(o *Org) { o.MaxPriority, o.Users = "normal", []User{{ID: "ann", Priority: "high"}} },
			"high is above the org's max_priority, normal; set max_priority: high",
		},
		{func(o *Org) {
			o.MaxPriority = "normal"
			o.Users = []User{{ID: "ann", Keys: []Key{{ID: "k", Priority: "high"}}}}
		}, "high is above the org's max_priority"},
		{func(o *Org) {
			o.Users = []User{{ID: "ann", Keys: []Key{{ID: "k", Hash: "q:" + strings.Repeat("ab", 32)}}}}
		}, `key k: hash: there is no pepper "q" in auth.peppers`},
		{func(o *Org) {
			o.Users = []User{{ID: "ann", Limits: []Limit{hour}}}
		}, `"hour" is a limit of the org`},
	} {
		err := cfg.CheckOrg(with(c.change))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestConfigMetrics: the metrics distinguish processes with the same file from processes with
// different files.
func TestConfigMetrics(t *testing.T) {
	values := func(text string, restart int, refused bool) map[string]float64 {
		reg := prometheus.NewRegistry()
		m := NewMetrics(reg)
		m.Taken(read(t, text), restart, time.UnixMilli(1_700_000_000_500))
		if refused {
			m.Refused()
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			out[strings.TrimPrefix(f.GetName(), "llmguard_config_")] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return out
	}
	one, two, other := values("", 3, false), values("", 0, true), values("log: {level: warn}", 0, false)
	if one["hash"] == 0 || one["hash"] != two["hash"] || one["hash"] == other["hash"] {
		t.Errorf("hashes: got %v, %v and %v, want two the same", one["hash"], two["hash"], other["hash"])
	}
	if one["restart_needed"] != 3 || one["last_reload_success_timestamp_seconds"] != 1_700_000_000.5 {
		t.Errorf("got %v", one)
	}
	if one["last_reload_successful"] != 1 || two["last_reload_successful"] != 0 {
		t.Errorf("successful: got %v and %v, want 1 and, when refused, 0", one["last_reload_successful"],
			two["last_reload_successful"])
	}
}
