package cli

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// desk is a configuration with a queue, driven from the command line.
type desk struct {
	*books
	q *queue.Queue
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	b := newBooks(t)
	cfg, err := config.Load(b.file)
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := app.Queue(t.Context(), cfg, b.redis, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &desk{b, q}
}

func (d *desk) put(org, user, model string) string {
	d.t.Helper()
	j := &queue.Job{
		ID: d.q.NewID("openai"), Pool: "openai", Org: org, User: user, Key: "k1", Class: queue.Async, Endpoint: wire.ChatCompletions,
		Model: model, Tokens: 10, Cost: 5_000, CallID: wire.NewCallID(), Header: http.Header{},
	}
	if err := d.q.Put(d.t.Context(), j, []byte("{}")); err != nil {
		d.t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	return j.ID
}

// run runs a command line and returns its output.
func (d *desk) run(args ...string) (string, string, error) {
	var out, notes strings.Builder
	err := run(d.t.Context(), append(args, "-c", d.file), &out, &notes)
	return out.String(), notes.String(), err
}

func (d *desk) must(args ...string) string {
	d.t.Helper()
	out, notes, err := d.run(args...)
	if err != nil {
		d.t.Fatalf("%v: %v\n%s", args, err, notes)
	}
	return out
}

func (d *desk) fails(want string, args ...string) {
	d.t.Helper()
	if _, _, err := d.run(args...); err == nil || !strings.Contains(err.Error(), want) {
		d.t.Errorf("%v: %v, want %q", args, err, want)
	}
}

func (d *desk) ids(args ...string) []string {
	d.t.Helper()
	var lines []jobLine
	if err := json.Unmarshal([]byte(d.must(append(args, "-o", "json")...)), &lines); err != nil {
		d.t.Fatal(err)
	}
	ids := []string{}
	for _, l := range lines {
		ids = append(ids, l.ID)
	}
	return ids
}

// TestJobsCommands: list, get and cancel across orgs, as table, JSON and YAML.
func TestJobsCommands(t *testing.T) {
	d := newDesk(t)
	if out, notes, err := d.run("jobs", "list"); err != nil || out != "" || notes != "no jobs\n" {
		t.Errorf("%q, %q, %v", out, notes, err)
	}
	a, b, g := d.put("acme", "alice", "gpt-4o"), d.put("acme", "bob", "gpt-4o-mini"), d.put("globex", "gus", "gpt-4o")
	check := func(want []string, args ...string) {
		t.Helper()
		if got := d.ids(append([]string{"jobs", "list"}, args...)...); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%v: %v, want %v", args, got, want)
		}
	}
	check([]string{g, b, a})
	check([]string{b, a}, "--org", "acme")
	check([]string{b}, "--user", "bob")
	check([]string{g, a}, "--model", "gpt-4o")
	check([]string{g, b, a}, "--since", "1h", "--status", "queued")
	check([]string{}, "--status", "failed")
	check([]string{g}, "--limit", "1")
	if out, notes, _ := d.run("jobs", "list", "--limit", "2"); len(strings.Split(out, "\n")) != 4 || !strings.Contains(notes, "newest 2") {
		t.Errorf("%s%s", out, notes)
	}
	out := d.must("jobs", "get", a)
	for _, want := range []string{"status       queued\n", "ahead        2, about", "owner        acme / alice / k1\n", "max cost     $0.000005\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := d.must("jobs", "get", b, "-o", "yaml"); !strings.Contains(out, "user: bob\n") {
		t.Errorf("%s", out)
	}
	if got := d.ids("jobs", "cancel", a, g); len(got) != 2 {
		t.Errorf("cancelled %v", got)
	}
	check([]string{g, a}, "--status", "cancelled")
	d.fails("is cancelled: The job was cancelled", "jobs", "watch", a)
	d.fails(`no job "job_x"`, "jobs", "get", "job_x")
	d.fails("no job", "jobs", "get", a, "--org", "globex")
	d.fails("--status done", "jobs", "list", "--status", "done")
	d.fails("is cancelled and was not replayed", "jobs", "replay", a)
}

// TestQueueCommand: pools, flows, paused flows and ages.
func TestQueueCommand(t *testing.T) {
	d := newDesk(t)
	d.put("acme", "alice", "gpt-4o")
	d.put("acme", "alice", "gpt-4o-mini")
	d.put("globex", "gus", "gpt-4o")
	till := float64(time.Now().Add(time.Minute).UnixMicro())
	for _, subject := range []string{"o globex", "U acme alice abc"} {
		if err := d.redis.ZAdd(t.Context(), "lg:{openai}:parked", zed(till, subject)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var pools []admin.QueuePool
	if err := json.Unmarshal([]byte(d.must("queue", "-o", "json")), &pools); err != nil || len(pools) != 1 {
		t.Fatalf("%+v, %v", pools, err)
	}
	v := pools[0]
	if v.Pool != "openai" || v.Waiting["async"] != 3 || v.Tokens != 30 || v.Oldest == nil || len(v.Flows) != 2 || v.Flows[0].User != "alice" || v.Flows[0].Jobs != 2 || len(v.Parked) != 2 || v.Dead != 0 {
		t.Errorf("%+v", v)
	}
	out := d.must("queue")
	for _, want := range []string{
		`acme    alice  async     2     0    0      20 `, `user's model, for (1m|[0-9]+s)\n`, ` org, for (1m|[0-9]+s)\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := d.must("queue", "--org", "globex"); strings.Contains(out, "alice") {
		t.Errorf("%s", out)
	}
	if out := d.must("queue", "--flows", "1"); !strings.Contains(out, "and 1 flow more") {
		t.Errorf("%s", out)
	}
	d.fails(`no pool "nope"`, "queue", "--pool", "nope")
	if out, notes, err := d.run("queue", "dead"); err != nil || out != "" || notes != "no dead letters\n" {
		t.Errorf("%q, %q, %v", out, notes, err)
	}
}

func zed(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// TestJobsWatchReplay: watching a job prints its output; replaying a dead letter creates a new
// job.
func TestJobsWatchReplay(t *testing.T) {
	d := newDesk(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer redistest.Wait(t, wg.Wait)
	defer cancel()
	var broken atomic.Bool
	broken.Store(true)
	wg.Go(func() { _ = d.q.Run(ctx) })
	wg.Go(func() {
		_ = queue.NewWorker(d.q, func(ctx context.Context, c *queue.Claim) queue.Verdict {
			if err := c.Start(ctx); err != nil {
				return queue.Verdict{Kind: queue.Requeue, Unused: true}
			}
			if broken.Load() {
				return queue.Verdict{Kind: queue.Fail, Error: wire.BadGateway("The provider broke off", nil)}
			}
			_, _ = io.WriteString(c.Output(), `{"choices":[]}`)
			return queue.Verdict{Kind: queue.Done, Status: 200}
		}, queue.WorkerOptions{ShutdownTimeout: 100 * time.Millisecond}).Run(ctx)
	})
	id := d.put("acme", "alice", "gpt-4o")
	redistest.Eventually(t, "the job is dead", func() bool { return len(d.ids("queue", "dead")) > 0 })
	d.fails("is failed: The provider broke off", "jobs", "watch", id)
	if got := d.ids("queue", "dead"); len(got) != 1 || got[0] != id {
		t.Fatalf("dead letters %v", got)
	}
	if out := d.must("queue"); !strings.Contains(out, "dead") || !strings.HasSuffix(strings.Split(out, "\n")[1], " 1") {
		t.Errorf("%s", out)
	}
	broken.Store(false)
	again := d.ids("jobs", "replay", id)
	if len(again) != 1 || again[0] == id {
		t.Fatalf("replayed as %v", again)
	}
	out, notes, err := d.run("jobs", "watch", again[0])
	if err != nil || out != `{"choices":[]}` || !strings.HasSuffix(notes, " succeeded\n") {
		t.Errorf("%q, %q, %v", out, notes, err)
	}
	if got := d.ids("queue", "dead"); len(got) != 0 {
		t.Errorf("dead letters %v", got)
	}
}
