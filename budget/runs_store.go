package budget

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

var (
	// ErrNoRun means that there is no such run, or that it ended too long ago.
	ErrNoRun = errors.New("budget: no such run")
	// ErrRunEnded means that the run has ended.
	ErrRunEnded = errors.New("budget: the run has ended")
	// ErrRunsFull means that the owner has as many open runs as it may have.
	ErrRunsFull = errors.New("budget: too many open runs")
	// ErrRunLarge means that the amount would exceed the maximum.
	ErrRunLarge = errors.New("budget: the amount of the run would be too large")
	// ErrRunChanges means that the run was added to 500 times, the most that it can tell apart.
	ErrRunChanges = errors.New("budget: the run was added to too often")
)

// Runs keeps the budgets of runs in Redis, until an hour after their ends. It is safe for
// concurrent use. Errors may wrap ErrUnavailable.
type Runs struct {
	rdb    redisconn.DB
	runner *runner
	clock  *clock
	store  *Store
}

// NewRun is a run to create.
type NewRun struct {
	Run                // Path, Org, Amount and what its calls have
	Life time.Duration // until it expires, above 0
	Most int           // open runs that its parent may have, this one included
	// Latest is when its parent ends; zero: any time.
	Latest time.Time
	// Before is the longest life of an earlier run with the same id; 0: the id is new.
	Before time.Duration
}

func runKey(org, id string) string { return ledger.Key(org, "run:"+id) }

// keysOf returns the keys of a run: its record, the org's runs, those of its parent, and what it used.
func (r *Run) keysOf() []string {
	parent := "key:" + Giver(r.Key, r.Born)
	if r.Parent != "" {
		parent = r.Parent.ID()
	}
	state := r.Limits()[0].stateFor(ledger.Call{}, 0)
	return []string{
		runKey(r.Org, r.ID()), ledger.Key(r.Org, "runs"), ledger.Key(r.Org, "runs-of:"+parent),
		ledger.Key(r.Org, state.Key),
	}
}

// Create creates a run and returns it. If a run with its id exists, Create returns that one, with
// made false. ErrRunsFull means that the parent has Most open runs.
func (rs *Runs) Create(ctx context.Context, n NewRun) (run Run, made bool, err error) {
	n.Parent, n.Given = n.Path.Parent(), n.Amount
	what, err := json.Marshal(n.Run)
	if err != nil {
		return run, false, fmt.Errorf("budget: encode run: %w", err)
	}
	latest := int64(0)
	if !n.Latest.IsZero() {
		latest = n.Latest.UnixMicro()
	}
	created, err := rs.createdAt(ctx, n)
	if err != nil {
		return run, false, err
	}
	verdict, run, err := rs.run(ctx, rs.runner.scripts.runNew, &n.Run, n.ID(), what, int64(n.Amount),
		n.Life.Microseconds(), latest, n.Most, RunKept.Milliseconds(), created)
	if verdict == "full" {
		err = ErrRunsFull
	}
	return run, verdict == "made", err
}

// createdAt returns when a run counts as created, in us; 0: now. After a loss of data, a run that may have
// existed before counts as created before the loss, so that its limits are closed, like all others of that
// time (closedUntil).
func (rs *Runs) createdAt(ctx context.Context, n NewRun) (int64, error) {
	loss := rs.store.DataLoss
	if n.Before == 0 {
		return 0, nil
	}
	if err := loss.Look(ctx); err != nil {
		return 0, err
	}
	at := loss.Found()
	if at == 0 || rs.clock.now().UnixMicro() > at+n.Before.Microseconds() {
		return 0, nil
	}
	return at, nil
}

// TopUp adds to the amount of an open run. Repeating it with the same id adds nothing, as long as the run can
// be read. The error is ErrNoRun, ErrRunEnded, ErrRunChanges, or ErrRunLarge if the amount would exceed most.
func (rs *Runs) TopUp(ctx context.Context, r Run, id string, add, most pricing.Nano) (Run, error) {
	if most <= 0 || most > MaxAmount {
		most = MaxAmount
	}
	return rs.change(ctx, r, id, int64(add), most)
}

// End ends a run: no further call of it, or of a run inside it, is admitted. A run that has ended stays as it is.
func (rs *Runs) End(ctx context.Context, r Run) (Run, error) { return rs.change(ctx, r, "", "", 0) }

func (rs *Runs) change(ctx context.Context, r Run, id string, add any, most pricing.Nano) (Run, error) {
	verdict, out, err := rs.run(ctx, rs.runner.scripts.runChange, &r, r.ID(), id, add, int64(most),
		RunKept.Milliseconds())
	refusals := map[string]error{
		"missing": ErrNoRun, "ended": ErrRunEnded, "large": ErrRunLarge, "many": ErrRunChanges,
	}
	return out, cmp.Or(err, refusals[verdict])
}

// run runs a script on a run's keys and returns its verdict and the run.
func (rs *Runs) run(ctx context.Context, sc script, r *Run, args ...any) (string, Run, error) {
	began := time.Now()
	args = append([]any{rs.clock.given()}, args...)
	keys := r.keysOf()
	if sc.name == rs.runner.scripts.runNew.name {
		keys = keys[:3]
	}
	reply, err := sc.Run(ctx, rs.runner.others, keys, args...).StringSlice()
	rs.runner.metrics.took(sc.name, time.Since(began).Seconds())
	if err != nil {
		return "", Run{}, storeError(sc.name, err)
	}
	if len(reply) == 0 {
		return "", Run{}, fmt.Errorf("budget: %s: empty reply", sc.name)
	}
	fields := map[string]string{}
	for i := 1; i+1 < len(reply); i += 2 {
		fields[reply[i]] = reply[i+1]
	}
	if len(fields) == 0 {
		return reply[0], Run{}, nil
	}
	out, err := decodeRun(r.Org, r.ID(), fields)
	return reply[0], out, err
}

func decodeRun(org, id string, h map[string]string) (Run, error) {
	var out Run
	if err := json.Unmarshal([]byte(h["what"]), &out); err != nil {
		return out, fmt.Errorf("budget: run %s: %w", id, err)
	}
	n := func(field string) int64 { v, _ := strconv.ParseInt(h[field], 10, 64); return v }
	out.Org, out.Path, out.Amount = org, out.Parent.Below(id), pricing.Nano(n("amount"))
	out.Created, out.Expires = time.UnixMicro(n("created")), time.UnixMicro(n("expires"))
	if h["ended"] != "" {
		out.Ended = time.UnixMicro(n("ended"))
	}
	return out, nil
}

// Find returns runs by their ids, in order. The error is ErrNoRun if one does not exist.
func (rs *Runs) Find(ctx context.Context, org string, ids ...string) ([]Run, error) {
	out, err := findRuns(ctx, rs.rdb, org, ids)
	if err == nil && len(out) < len(ids) {
		err = ErrNoRun
	}
	return out, err
}

// Existing is Find without the runs that do not exist.
func (rs *Runs) Existing(ctx context.Context, org string, ids ...string) ([]Run, error) {
	return findRuns(ctx, rs.rdb, org, ids)
}

// findRuns returns the runs that exist.
func findRuns(ctx context.Context, rdb redisconn.DB, org string, ids []string) ([]Run, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	reads := make([]redisconn.Cmd[map[string]string], len(ids))
	p := rdb.Pipeline()
	for i, id := range ids {
		reads[i] = p.HGetAll(ctx, runKey(org, id))
	}
	err := p.Exec(ctx)
	if err != nil {
		return nil, storeError("read runs", err)
	}
	out := make([]Run, 0, len(ids))
	for i, id := range ids {
		if len(reads[i].Val()) == 0 {
			continue
		}
		run, err := decodeRun(org, id, reads[i].Val())
		if err != nil {
			return nil, err
		}
		out = append(out, run)
	}
	return out, nil
}

// RunPage is a page of a list of runs, the earliest end first.
type RunPage struct {
	Ending time.Time // only runs that end later; zero: those that have not ended over an hour ago
	After  string    // the id of the last run of the page before; empty: the first page
	Limit  int       // runs of a page, at least 1
}

// List returns a page of the runs of an org, and whether more follow: of all, or those that a key or a run gave an
// amount to. The error is ErrNoRun if After is not among them.
func (rs *Runs) List(
	ctx context.Context, org, owner string, parent ledger.RunPath, page RunPage,
) (out []Run, more bool, err error) {
	name := "runs"
	switch {
	case parent != "":
		name = "runs-of:" + parent.ID()
	case owner != "":
		name = "runs-of:key:" + owner
	}
	from := rs.clock.now().Add(-RunKept)
	if page.Ending.After(from) {
		from = page.Ending
	}
	list := ledger.Key(org, name)
	first, err := rs.rdb.ZCount(ctx, list, "-inf", strconv.FormatInt(from.UnixMicro(), 10)).Result()
	if page.After != "" && err == nil {
		var last int64
		last, err = rs.rdb.ZRank(ctx, list, page.After).Result()
		first = max(first, last+1)
	}
	if redisconn.IsNil(err) {
		return nil, false, ErrNoRun
	}
	if err != nil {
		return nil, false, storeError("list runs", err)
	}
	ids, err := rs.rdb.ZRange(ctx, list, first, first+int64(page.Limit)).Result()
	if err != nil {
		return nil, false, storeError("list runs", err)
	}
	more = len(ids) > page.Limit
	out, err = findRuns(ctx, rs.rdb, org, ids[:min(len(ids), page.Limit)])
	return out, more, err
}

// RunUse is what a run has used.
type RunUse struct {
	Spent pricing.Nano // charged
	Held  pricing.Nano // by open calls
	// Remaining is what is left of the amount, never negative.
	Remaining pricing.Nano
}

// Uses returns what runs of an org have used, in order.
func (rs *Runs) Uses(ctx context.Context, org string, runs []Run) ([]RunUse, error) {
	out := make([]RunUse, 0, len(runs))
	for some := range slices.Chunk(runs, maxLimits) {
		limits := make([]Limit, len(some))
		for i := range some {
			limits[i] = some[i].Limits()[0]
		}
		statuses, err := rs.store.Peek(ctx, limits, ledger.Call{Org: org})
		if err != nil {
			return nil, err
		}
		for _, st := range statuses {
			out = append(out, RunUse{
				Spent: pricing.Nano(st.Used - st.Held), Held: pricing.Nano(st.Held), Remaining: pricing.Nano(st.Remaining),
			})
		}
	}
	return out, nil
}

// RunOwner is whom a run's own key belongs to.
type RunOwner struct {
	Org string         `json:"org"`
	Key string         `json:"key"` // the key whose limits, models and labels it has
	Run ledger.RunPath `json:"run"`
	// Lineage is that of the secret which created the key; empty: of earlier versions.
	Lineage string `json:"lineage,omitempty"`
}

func runKeyKey(hash string) string { return ledger.Key("run-key:"+hash, "run") }

// PutKey stores the hash of a run's own key for the life of the run, at most.
func (rs *Runs) PutKey(ctx context.Context, hash string, o RunOwner, life time.Duration) error {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("budget: encode owner of a run: %w", err)
	}
	if err := rs.rdb.Set(ctx, runKeyKey(hash), text, life+RunKept).Err(); err != nil {
		return storeError("store key of run", err)
	}
	return nil
}

// FindKey returns the run that a key with one of these hashes belongs to. The error is ErrNoRun if there is none.
func (rs *Runs) FindKey(ctx context.Context, hashes ...string) (RunOwner, error) {
	var out RunOwner
	for _, hash := range hashes {
		text, err := rs.rdb.Get(ctx, runKeyKey(hash)).Bytes()
		if redisconn.IsNil(err) {
			continue
		}
		if err != nil {
			return out, storeError("find key of run", err)
		}
		if err := json.Unmarshal(text, &out); err != nil {
			return out, fmt.Errorf("budget: owner of a run: %w", err)
		}
		return out, nil
	}
	return out, ErrNoRun
}
