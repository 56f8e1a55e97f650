package proxy

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// endingRig has two processes with the same Redis. The second one has seen no child key.
type endingRig struct {
	*rig
	other *Server
}

// knows sets what both processes know of the rig's key, under its hash; a nil function forgets it.
func (r *endingRig) knows(change func(p *auth.Principal)) {
	d := &auth.Directory{ByHash: map[string]auth.Principal{}}
	if change != nil {
		p := auth.Principal{Org: r.org, User: "alice", Key: "k1", Born: "b1", Lineage: "l1", Scopes: []string{
			"holds", "runs", "calls", "jobs", "files", "batches", "usage",
		}}
		change(&p)
		d.ByHash[keys.Hash(keys.Pepper{}, r.key)] = p
	}
	r.proxy.SetDirectory(d)
	r.other.SetDirectory(d)
}

func (r *endingRig) job(key string) string {
	r.t.Helper()
	a := r.inRun(key, "Prefer", "respond-async")
	var job jobView
	if err := json.Unmarshal([]byte(a.body), &job); err != nil || a.status != 202 {
		r.t.Fatalf("got %d %s, want a job", a.status, a.body)
	}
	redistest.Eventually(r.t, "the job has a result", func() bool {
		return r.call("GET", "/v1/jobs/"+job.ID+"/result", "").status == 200
	})
	return job.ID
}

// asks sends a request to a process and returns the status and the code of the error.
func asks(t *testing.T, s *Server, key, method, path string) (int, string) {
	t.Helper()
	req := httptest.NewRequest(method, "/v1"+path, strings.NewReader(`{}`))
	req.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	var body struct{ Error struct{ Code string } }
	_ = json.Unmarshal(w.Body.Bytes(), &body)
	return w.Code, body.Error.Code
}

// A child key that has ended opens nothing but reads of the results of its own run, for as long as the run can be
// read; one whose parent has ended opens nothing: on every route, in a process that knows the key and in one that does not.
func TestEndedKeysOpenNothing(t *testing.T) {
	var opts Options
	r := &endingRig{rig: newRig(t, queue.Pool{}, func(o *Options) {
		o.Metrics = nil
		opts = *o
	})}
	r.org.Runs = settings.Runs{MaxDepth: 3, MaxOpen: 40, MaxLife: 100 * time.Hour}
	r.other = New(opts)
	same := func(*auth.Principal) {}
	r.knows(same)
	r.worker(nil)
	foreign := r.job(r.key)
	for name, tc := range map[string]struct {
		life  string
		outer bool // the key is one of a run inside another
		end   func(outer, own guard.RunView)
		code  string
	}{
		"ended": {code: runEndedCode, end: func(_, own guard.RunView) { r.run(r.key, "DELETE", "/"+own.ID, "") }},
		"expired": {code: runEndedCode, life: `,"expires_in":"2s"`, end: func(_, own guard.RunView) {
			redistest.Eventually(t, "the run expires", func() bool { return r.run(r.key, "GET", "/"+own.ID, "").Status == "expired" })
		}},
		"outer run ended": {code: runEndedCode, outer: true, end: func(outer, _ guard.RunView) {
			r.run(r.key, "DELETE", "/"+outer.ID, "")
		}},
		"forgotten": {code: "invalid_api_key", end: func(_, own guard.RunView) {
			if n, err := r.rdb.Del(t.Context(), "lg:{acme}:run:"+own.ID).Result(); n != 1 || err != nil {
				t.Fatalf("got %d records of the run, error %v", n, err)
			}
		}},
		"parent deleted":  {code: "invalid_api_key", end: func(_, _ guard.RunView) { r.knows(nil) }},
		"parent disabled": {code: "invalid_api_key", end: func(_, _ guard.RunView) { r.knows(func(p *auth.Principal) { p.Disabled = true }) }},
		"parent expired": {code: "invalid_api_key", end: func(_, _ guard.RunView) {
			r.knows(func(p *auth.Principal) { p.Expires = time.Now().Add(-time.Second) })
		}},
		"parent rotated": {code: "invalid_api_key", end: func(_, _ guard.RunView) { r.knows(func(p *auth.Principal) { p.Lineage = "l2" }) }},
		"id used again":  {code: "invalid_api_key", end: func(_, _ guard.RunView) { r.knows(func(p *auth.Principal) { p.Born = "b2" }) }},
		"other user":     {code: "invalid_api_key", end: func(_, _ guard.RunView) { r.knows(func(p *auth.Principal) { p.User = "bob" }) }},
	} {
		t.Run(name, func(t *testing.T) {
			r.knows(same)
			outer := r.run(r.key, "POST", "", `{"amount":"0.1"}`)
			giver := r.key
			if tc.outer {
				giver = outer.Key
			}
			own := r.run(giver, "POST", "", `{"amount":"0.05"`+tc.life+`}`)
			job := r.job(own.Key)
			tc.end(outer, own)
			for path, to := range r.proxy.routes {
				for _, method := range to.methods {
					if to.open {
						continue
					}
					path := strings.ReplaceAll(path, "*", job)
					if strings.HasSuffix(path, "/") {
						path += job
					}
					for i, s := range []*Server{r.proxy, r.other} {
						status, code := asks(t, s, own.Key, method, path)
						results := strings.HasPrefix(to.name, "jobs.") && method == "GET" && tc.code == runEndedCode
						switch {
						case results && status != 200:
							t.Errorf("%s %s in process %d: got %d %s, want the result of the run", method, path, i, status, code)
						case !results && to.results && method == "GET" && tc.code == runEndedCode:
							if status != 404 {
								t.Errorf("%s %s in process %d: got %d %s, want 404", method, path, i, status, code)
							}
						case strings.HasPrefix(to.name, "limit_requests") && code == "missing_scope": // no run has it
						case !results && code != tc.code && (status != 429 || tc.code == runEndedCode): // 429: too many wrong keys
							t.Errorf("%s %s in process %d: got %d %s, want %s", method, path, i, status, code, tc.code)
						}
					}
				}
			}
			if tc.code == runEndedCode {
				if status, _ := asks(t, r.other, own.Key, "GET", "/jobs/"+foreign+"/result"); status != 404 {
					t.Errorf("the result of a job outside the run: got %d, want 404", status)
				}
			}
		})
	}
}

// Runs that a header names, and lists of runs, are not those of an earlier key with the same id.
func TestRunsOfAnEarlierKey(t *testing.T) {
	r := runRig(t)
	as := func(user, born string) {
		r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
			keys.Hash(keys.Pepper{}, r.key): {Org: r.org, User: user, Key: "k1", Born: born},
		}})
	}
	as("alice", "b1")
	if a := r.inRunNext(r.key, headerBudget, "amount=0.05; run=nightly"); a.status != http.StatusOK {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	ids := func() []string {
		var list struct{ Data []guard.RunView }
		if err := json.Unmarshal([]byte(r.call("GET", "/v1/keys/children", "").body), &list); err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, v := range list.Data {
			out[v.ID] = true
		}
		return slices.Sorted(maps.Keys(out))
	}
	before := ids()
	as("bob", "b2")
	if got := ids(); len(before) != 1 || len(got) != 0 {
		t.Errorf("got the runs %q of the first key and %q of the second, want one and none", before, got)
	}
	r.call("GET", "/v1/keys/children/"+before[0], "").fails(t, 404, "run_not_found")
	r.inRunNext(r.key, headerBudget, "run=nightly").fails(t, 404, "run_not_found")
	if a := r.inRunNext(r.key, headerBudget, "amount=0.02; run=nightly"); a.status != http.StatusOK {
		t.Errorf("a run of the same name: got %d %s", a.status, a.body)
	}
	if got := ids(); len(got) != 1 || got[0] == before[0] {
		t.Errorf("got the runs %q, want another than %q", got, before)
	}
	if list, _, err := r.store.Runs.List(t.Context(), "acme", budget.Giver("k1", "b1"), "", budget.RunPage{Limit: 9}); err != nil || len(list) != 1 {
		t.Errorf("got %d runs of the first key, error %v, want 1", len(list), err)
	}
}

// Wrong keys from an address do not keep new child keys of its neighbors out, in a process that has not seen them.
func TestChildKeysBesideWrongKeys(t *testing.T) {
	var opts Options
	r := &endingRig{rig: newRig(t, queue.Pool{}, func(o *Options) { opts = *o })}
	r.org.Runs = settings.Runs{MaxDepth: 3, MaxOpen: 40, MaxLife: time.Hour}
	r.other = New(opts)
	r.knows(func(*auth.Principal) {})
	for _, class := range []keys.Class{keys.Live, keys.Run} {
		for i := 0; ; i++ {
			if status, _ := asks(t, r.other, keys.New(class), "GET", "/models"); status == 429 {
				break
			}
			if i == 1000 {
				t.Fatal("wrong keys are never blocked")
			}
		}
	}
	for range 15 {
		child := r.run(r.key, "POST", "", `{"amount":"0.01"}`)
		for range 5 {
			_, _ = asks(t, r.other, keys.New(keys.Run), "GET", "/models")
		}
		if status, code := asks(t, r.other, child.Key, "GET", "/models"); status != 200 {
			t.Errorf("a new child key: got %d %s, want 200", status, code)
		}
	}
	if status, _ := asks(t, r.other, keys.NewRun(keys.Pepper{}), "GET", "/models"); status != 429 {
		t.Errorf("a wrong key of the right form: got %d, want 429", status)
	}
}
