package guard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// labelPlanner returns a Planner with labels. At most two values count.
func labelPlanner(labels ...Label) *Planner {
	pl := NewPlanner(&Policy{Labels: labels}, nil)
	seen := map[string]bool{}
	outage := newOutage(Options{Budget: budget.New(nil, budget.Options{}), StoreDeadline: time.Minute})
	pl.labels = &labeler{outage: outage, count: func(_ context.Context, org, label, value string, most int) (bool, error) {
		if !seen[value] && len(seen) >= most {
			return false, nil
		}
		seen[value] = true
		return true, nil
	}}
	return pl
}

func scanned(t *testing.T, more string) *wire.Request {
	t.Helper()
	r, err := wire.Scan(wire.ChatCompletions, []byte(`{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]`+more+`}`), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLabelSources: the first source with a value counts, in the order of From.
func TestLabelSources(t *testing.T) {
	header, body, key := LabelSource{Header: "X-Project"}, LabelSource{Field: "metadata.project"}, LabelSource{Key: true}
	user := LabelSource{Field: "user"}
	for _, c := range []struct {
		from         []LabelSource
		header, more string
		want         ledger.Labels // empty: an error with code
		code         string
	}{
		{from: []LabelSource{header, body, key}, header: "h", more: `,"metadata":{"project":"b"}`, want: "project=h"},
		{from: []LabelSource{header, body, key}, more: `,"metadata":{"project":"b"}`, want: "project=b"},
		{from: []LabelSource{header, body, key}, want: "project=k"},
		{from: []LabelSource{key, header}, header: "h", want: "project=k"},
		{from: []LabelSource{user}, more: `,"user":"carol@example.com"`, want: "project=carol@example.com"},
		{from: []LabelSource{body}, more: `,"metadata":{"project":null}`, code: "missing_label"},
		{from: []LabelSource{header}, code: "missing_label"},
		{from: []LabelSource{header}, header: "a b", code: "invalid_label"},
		{from: []LabelSource{header}, header: "(other)", code: "invalid_label"},
		{from: []LabelSource{header}, header: strings.Repeat("a", 129), code: "invalid_label"},
		{from: []LabelSource{user}, more: `,"user":7`, code: "invalid_type"},
		{from: []LabelSource{body}, more: `,"metadata":[]`, code: "invalid_type"},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set("X-Project", c.header)
		}
		pl := labelPlanner(Label{Name: "project", From: c.from, Required: true, MaxValues: 2})
		who := Caller{Org: &Org{Org: settings.Org{ID: "acme"}}, KeyLabels: map[string]string{"project": "k"}}
		got, err := pl.Label(t.Context(), who, LabelsIn(h, scanned(t, c.more)))
		code := ""
		if public, ok := errors.AsType[*wire.Error](err); ok {
			code = public.Code
		} else if err != nil {
			t.Fatal(err)
		}
		if got.Labels != c.want && c.code == "" || code != c.code {
			t.Errorf("%v with header %.20q and %s: got %q %q, want %q %q", c.from, c.header, c.more, got.Labels, code, c.want, c.code)
		}
	}
}

// TestLabelsTwice: a header sent twice is refused, because it would be a guess which one counts.
func TestLabelsTwice(t *testing.T) {
	pl := labelPlanner(Label{Name: "project", From: []LabelSource{{Header: "X-Project"}}, MaxValues: 2})
	_, err := pl.Label(t.Context(), Caller{Org: &Org{Org: settings.Org{ID: "acme"}}}, LabelPlaces{Header: http.Header{"X-Project": {"a", "b"}}})
	if public, ok := errors.AsType[*wire.Error](err); !ok || public.Code != "invalid_label" {
		t.Errorf("got %v, want invalid_label", err)
	}
}

// TestLabelValues: values beyond the maximum count together; those of keys are not counted.
func TestLabelValues(t *testing.T) {
	pl := labelPlanner(Label{Name: "run", From: []LabelSource{{Header: "X-Run"}, {Key: true}}, MaxValues: 2})
	for _, c := range []struct{ header, want string }{
		{"", "k"}, {"a", "a"}, {"b", "b"}, {"c", ledger.OtherLabel}, {"a", "a"}, {"", "k"},
	} {
		in := LabelPlaces{Header: http.Header{}}
		if c.header != "" {
			in.Header.Set("X-Run", c.header)
		}
		got, err := pl.Label(t.Context(), Caller{Org: &Org{Org: settings.Org{ID: "acme"}}, KeyLabels: map[string]string{"run": "k"}}, in)
		if err != nil || got.Labels.Get("run") != c.want {
			t.Errorf("run %q is %q (%v), want %q", c.header, got.Labels.Get("run"), err, c.want)
		}
	}
}

// What a run fixes takes the place of what its callers could choose, counts as one of the values, and never replaces what
// an operator or an outer run chose.
func TestLabelsOfRuns(t *testing.T) {
	header, byKey := LabelSource{Header: "X-Project"}, LabelSource{Key: true}
	for _, c := range []struct {
		from             []LabelSource
		key, outer, wish string
		want             string // of a call that names "h" in its header
		refused          bool
	}{
		{from: []LabelSource{header}, wish: "a", want: "a"},
		{from: []LabelSource{header, byKey}, wish: "a", want: "a"},
		{from: []LabelSource{header, byKey}, key: "k", wish: "a", want: "h", refused: true},
		{from: []LabelSource{byKey, header}, key: "k", wish: "a", want: "k", refused: true},
		{from: []LabelSource{byKey, header}, key: "k", wish: "k", want: "k"},
		{from: []LabelSource{byKey}, key: "k", wish: "a", want: "k", refused: true},
		{from: []LabelSource{byKey}, wish: "a", want: "", refused: true},
		{from: []LabelSource{header}, key: "k", wish: "a", want: "a"}, // the key's is not used
		{from: []LabelSource{header}, outer: "o", wish: "a", want: "o", refused: true},
		{from: []LabelSource{header}, outer: "o", wish: "o", want: "o"},
		{from: []LabelSource{header}, wish: "full", want: ledger.OtherLabel},
	} {
		label := Label{Name: "project", From: c.from, MaxValues: 2}
		policy := &Policy{Labels: []Label{label}}
		pl := labelPlanner(label)
		who := Caller{Org: &Org{Org: settings.Org{ID: "acme"}}, KeyLabels: map[string]string{"project": c.key}}
		if c.outer != "" {
			who.Runs = append(who.Runs, budget.Run{Labels: map[string]string{"project": c.outer}})
		}
		wish := map[string]string{"project": c.wish, "run": "any"}
		if err := policy.checkRunLabels(who, RunWish{Labels: wish}); (err != nil) != c.refused {
			t.Errorf("%v, key %q, outer run %q: a run with %q: got error %v, want refused %t", c.from, c.key, c.outer, c.wish, err, c.refused)
		}
		who.Runs = append(who.Runs, budget.Run{Labels: wish})
		in := LabelPlaces{Header: http.Header{"X-Project": {"h"}}}
		if c.want == ledger.OtherLabel {
			for _, other := range []string{"one", "two"} {
				other := LabelPlaces{Header: http.Header{"X-Project": {other}}}
				if _, err := pl.Label(t.Context(), Caller{Org: who.Org}, other); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := pl.Label(t.Context(), who, in)
		if err != nil || got.Labels.Get("project") != c.want {
			t.Errorf("%v, key %q, outer run %q, run with %q: got %q, error %v, want %q", c.from, c.key, c.outer, c.wish, got.Labels.Get("project"), err, c.want)
		}
		batch, err := pl.LabelBatch(t.Context(), who, in)
		if err != nil {
			t.Fatal(err)
		}
		got, err = pl.LabelLine(t.Context(), who, batch, scanned(t, ""))
		if err != nil || got.Labels.Get("project") != c.want {
			t.Errorf("a line of a batch, %v, key %q: got %q, error %v, want %q", c.from, c.key, got.Labels.Get("project"), err, c.want)
		}
	}
}

// TestIgnoreInvalid: an invalid value counts as absent, so the next source that has a valid one counts.
func TestIgnoreInvalid(t *testing.T) {
	from := []LabelSource{{Header: "X-One"}, {Header: "X-Two"}}
	for _, c := range []struct {
		one, two []string
		want     ledger.Labels
	}{
		{one: []string{"a"}, two: []string{"b"}, want: "session=a"},
		{one: []string{"a b"}, two: []string{"b"}, want: "session=b"},
		{one: []string{"a", "a"}, two: []string{"b"}, want: "session=b"},
		{one: []string{ledger.OtherLabel}, two: []string{"b"}, want: "session=b"},
		{one: []string{"a"}, two: []string{"b c"}, want: "session=a"},
		{one: []string{strings.Repeat("a", ledger.MaxLabelValue+1)}, want: ""},
		{two: []string{"b\tc"}, want: ""},
	} {
		pl := labelPlanner(Label{Name: "session", From: from, IgnoreInvalid: true, MaxValues: 2})
		who := Caller{Org: &Org{Org: settings.Org{ID: "acme"}}}
		in := LabelPlaces{Header: http.Header{"X-One": c.one, "X-Two": c.two}}
		got, err := pl.Label(t.Context(), who, in)
		if err != nil || got.Labels != c.want {
			t.Errorf("%.20q and %.20q: got %q, error %v, want %q", c.one, c.two, got.Labels, err, c.want)
		}
	}
}
