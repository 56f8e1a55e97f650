package cli_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// jobView is a job as printed with -o json.
type jobView struct {
	ID, Status, Pool, Class, Org, User, Key, Model, Endpoint string
	Tokens, Bytes                                            int64
	Attempts                                                 int
	Created                                                  time.Time  `json:"created_at"`
	Finished                                                 *time.Time `json:"finished_at"`
	Ahead                                                    *int
	ETA                                                      *int64 `json:"eta_seconds"`
	Estimate                                                 int64  `json:"estimated_nano_usd"`
	Charged                                                  int64  `json:"charged_nano_usd"`
}

// queued is a site with a queue but no worker.
type queued struct {
	*site
	q *queue.Queue
}

func newQueued(t *testing.T) *queued {
	t.Helper()
	s := newSite(t, orgs)
	q, _, err := app.Queue(t.Context(), s.config(), s.redis, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &queued{s, q}
}

func (s *queued) put(org, user, model string) string {
	s.t.Helper()
	j := &queue.Job{
		ID: s.q.NewID("openai"), Pool: "openai", Org: org, User: user, Key: "k1", Class: queue.Async, Endpoint: wire.ChatCompletions,
		Model: model, Tokens: 10, Cost: 5_000, CallID: wire.NewCallID(), Header: http.Header{},
	}
	if err := s.q.Put(s.t.Context(), j, []byte("{}")); err != nil {
		s.t.Fatal(err)
	}
	return j.ID
}

func (s *queued) ids(args ...string) map[string]bool {
	s.t.Helper()
	var list []jobView
	s.read(&list, append([]string{"jobs", "list"}, args...)...)
	out := map[string]bool{}
	for _, j := range list {
		out[j.ID] = true
	}
	return out
}

// TestJobsFilters: each filter leaves exactly the matching jobs, and filters combine.
func TestJobsFilters(t *testing.T) {
	s := newQueued(t)
	jobs := map[string][3]string{}
	for _, j := range [][3]string{{"acme", "alice", "gpt-4o"}, {"acme", "alice", "o3"}, {"acme", "bob", "gpt-4o"}, {"globex", "gus", "gpt-4o"}} {
		jobs[s.put(j[0], j[1], j[2])] = j
	}
	for _, test := range []struct{ org, user, model string }{
		{}, {org: "acme"}, {org: "globex"}, {user: "alice"}, {model: "gpt-4o"}, {org: "acme", model: "gpt-4o"}, {org: "acme", user: "bob", model: "o3"}, {user: "gus", org: "acme"},
	} {
		args, want := []string{}, 0
		for i, value := range []string{test.org, test.user, test.model} {
			if value != "" {
				args = append(args, "--"+[]string{"org", "user", "model"}[i], value)
			}
		}
		got := s.ids(args...)
		for id, j := range jobs {
			fits := (test.org == "" || test.org == j[0]) && (test.user == "" || test.user == j[1]) && (test.model == "" || test.model == j[2])
			if fits {
				want++
			}
			if got[id] != fits {
				t.Errorf("jobs list %v: job %v listed %t, want %t", args, j, got[id], fits)
			}
		}
		if len(got) != want {
			t.Errorf("jobs list %v: %d jobs, want %d", args, len(got), want)
		}
	}
	if got := s.ids("--since", "1h", "--status", "queued"); len(got) != 4 {
		t.Errorf("of the last hour: %d, want 4", len(got))
	}
	for args, want := range map[string]string{
		"--status done": "--status done: expected one of queued running succeeded failed cancelled expired",
		"--limit 0":     "--limit 0: expected 1 to 1000",
		"--limit 1001":  "--limit 1001: expected 1 to 1000",
		"--since x":     `invalid argument "x" for "--since"`,
	} {
		s.refuses(want, append([]string{"jobs", "list"}, strings.Fields(args)...)...)
	}
}

// TestJobFields: a waiting job has a position and a maximum cost; a cancelled one has an end
// time and no charge.
func TestJobFields(t *testing.T) {
	s := newQueued(t)
	first := s.put("acme", "alice", "gpt-4o")
	var j jobView
	s.read(&j, "jobs", "get", first)
	if j.Status != "queued" || j.Pool != "openai" || j.Class != "async" || j.Endpoint != "chat.completions" || j.Tokens != 10 || j.Bytes != 2 ||
		j.Estimate != 5_000 || j.Ahead == nil || *j.Ahead != 0 || j.ETA == nil || j.Finished != nil || j.Attempts != 0 || j.Created.IsZero() {
		t.Errorf("waiting: %+v", j)
	}
	var ended []jobView
	s.read(&ended, "jobs", "cancel", first)
	if len(ended) != 1 || ended[0].Status != "cancelled" || ended[0].Finished == nil || ended[0].Charged != 0 {
		t.Errorf("cancelled: %+v", ended)
	}
	var audit []tenants.AuditEntry
	s.read(&audit, "audit", "--all")
	if len(audit) != 1 || audit[0].Action != "job.cancel" || audit[0].Target != first || !strings.HasPrefix(audit[0].Actor, "local:") ||
		!strings.Contains(string(audit[0].Before), `"queued"`) || !strings.Contains(string(audit[0].After), `"cancelled"`) {
		t.Errorf("on record: %+v", audit)
	}
	s.read(&ended, "jobs", "cancel", first)
	if ended[0].Status != "cancelled" {
		t.Errorf("cancelled twice: %+v", ended)
	}
	s.refuses("is cancelled and was not replayed: The job is not a dead letter", "jobs", "replay", first)
}

// TestCancelOfSeveral: an unknown id is reported, and the jobs before it are cancelled.
func TestCancelOfSeveral(t *testing.T) {
	s := newQueued(t)
	a, b := s.put("acme", "alice", "gpt-4o"), s.put("acme", "alice", "gpt-4o")
	out, notes, code := llmguard(t, "jobs", "cancel", a, "job_wrong", b, "-c", s.file)
	if code != 1 || !strings.Contains(out, a) || !strings.Contains(out, "cancelled") {
		t.Errorf("exit code %d, output %q; want the job that was cancelled", code, out)
	}
	has(t, notes, `no job "job_wrong". Finished jobs are deleted`)
	if left := s.ids("--status", "queued"); len(left) != 1 || !left[b] {
		t.Errorf("left are %v, want %s", left, b)
	}
}

// TestQueueCounts: waiting jobs add up over flows, and --org hides other orgs.
func TestQueueCounts(t *testing.T) {
	s := newQueued(t)
	for range 3 {
		s.put("acme", "alice", "gpt-4o")
	}
	s.put("acme", "bob", "gpt-4o")
	s.put("globex", "gus", "gpt-4o")
	var pools []struct {
		Pool    string
		Waiting map[string]int64
		Tokens  int64 `json:"waiting_tokens"`
		Jobs    int64 `json:"open_jobs"`
		Dead    int64 `json:"dead_letters"`
		Flows   []struct {
			Org, User    string
			Jobs, Tokens int64
		}
		Parked []json.RawMessage
	}
	s.read(&pools, "queue")
	if len(pools) != 1 || pools[0].Waiting["async"] != 5 || pools[0].Tokens != 50 || pools[0].Jobs != 5 || pools[0].Dead != 0 || len(pools[0].Flows) != 3 {
		t.Fatalf("queue: %+v", pools)
	}
	var jobs, tokens int64
	for _, f := range pools[0].Flows {
		jobs, tokens = jobs+f.Jobs, tokens+f.Tokens
	}
	if jobs != 5 || tokens != 50 {
		t.Errorf("the flows have %d jobs and %d tokens, want 5 and 50", jobs, tokens)
	}
	s.read(&pools, "queue", "--org", "acme")
	if len(pools[0].Flows) != 2 {
		t.Errorf("flows of acme: %+v", pools[0].Flows)
	}
	has(t, s.must("queue"), "acme alice async 3 0 0 30", "globex gus async 1 0 0 10")
	s.refuses("--limit 0: expected 1 to 1000", "queue", "dead", "--limit", "0")
}

// TestPurgeSaysFirst: without --yes purge only counts. An org that is active or defined in the
// file is refused.
func TestPurgeSaysFirst(t *testing.T) {
	s := newSite(t, orgs)
	s.must("orgs", "create", "initech")
	s.must("users", "create", "ann", "--org", "initech")
	s.refuses("Org acme is in the configuration file", "orgs", "purge", "acme", "--yes")
	s.refuses("Org initech is not disabled: `llmguard orgs disable initech` first", "orgs", "purge", "initech", "--yes")
	s.must("orgs", "disable", "initech")
	s.refuses("its ledger is kept (delete it with --ledger). Confirm with --yes", "orgs", "purge", "initech")
	has(t, s.must("users", "list", "--org", "initech"), "ann")
	has(t, s.must("orgs", "purge", "initech", "--yes", "--reason", "contract ended"), "deleted org initech: ")
	has(t, s.must("orgs", "purge", "initech", "--yes"), "no data left of org initech")
	s.refuses("org must be 1 to 64 of a-z", "orgs", "purge", "Not/Good", "--yes")
}

// TestSimulateRefused: invalid flags are rejected before any call is replayed.
func TestSimulateRefused(t *testing.T) {
	s := newSite(t, orgs)
	log := filepath.Join(t.TempDir(), "calls.jsonl")
	writeFile(t, log, "")
	for _, test := range []struct{ want, args string }{
		{"no calls to replay; choose a longer period with --from or --days", "--org all"},
		{"no calls to replay", "--log " + log},
		{"--by colour: expected any of", "--by colour"},
		{"--top must be 0 or more, --workers 1 or more", "--top -1"},
		{"--top must be 0 or more, --workers 1 or more", "--workers 0"},
		{"--plot x.png: expected a file name that ends with .svg or .html", "--plot x.png"},
		{"--log cannot be combined with --org, --from, --to and --days, which select calls of the ledger", "--days 3 --log " + log},
		{"none.jsonl", "--log none.jsonl"},
		{"none.yaml", "--baseline none.yaml"},
	} {
		s.refuses(test.want, append([]string{"simulate", "--policy", s.file}, strings.Fields(test.args)...)...)
	}
	if _, err := os.Stat("x.png"); err == nil {
		t.Error("a refused command has written x.png")
	}
}

// TestShadowOfNothing: without limits in shadow mode the report is empty in every format.
func TestShadowOfNothing(t *testing.T) {
	s, _ := ledger(t)
	var r struct {
		Calls    int
		HeldBack int `json:"held_back"`
	}
	s.read(&r, "limits", "shadow", "--org", "all")
	if r.Calls != 12 || r.HeldBack != 0 {
		t.Errorf("report %+v, want 12 calls, none held back", r)
	}
	out, notes, code := llmguard(t, "limits", "shadow", "--org", "all", "-c", s.file)
	if code != 0 || out != "" || notes != "no limit in shadow mode would have held back any of 12 calls\n" {
		t.Errorf("exit code %d, output %q, notes %q", code, out, notes)
	}
	if csv := s.must("limits", "shadow", "--org", "all", "-o", "csv"); csv != "limit,org,user,would_wait,wait_p50_ms,wait_p95_ms,wait_max_ms,would_refuse\n" {
		t.Errorf("csv %q", csv)
	}
}

// TestSimulateReplaysLedger: under generous limits every call starts immediately, and the spend
// equals the ledger's.
func TestSimulateReplaysLedger(t *testing.T) {
	s, want := ledger(t)
	var answer struct {
		Reports []struct {
			Total struct{ Calls, Refused, Waited int }
		}
	}
	s.read(&answer, "simulate", "--policy", s.file, "--org", "all")
	if len(answer.Reports) != 1 || answer.Reports[0].Total.Calls != 12 || answer.Reports[0].Total.Refused != 0 || answer.Reports[0].Total.Waited != 0 {
		t.Errorf("reports %+v", answer.Reports)
	}
	has(t, s.must("simulate", "--policy", s.file, "--org", "all"), "12 calls from", want.String())
}
