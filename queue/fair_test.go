package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
)

// drain claims n jobs one at a time, ends each, and counts the jobs and tokens that each
// user got.
func (e *env) drain(pool string, n int) (jobs, tokens map[string]int64) {
	e.t.Helper()
	jobs, tokens = make(map[string]int64), make(map[string]int64)
	pc := newPacer(e.Queue, e.settings.pools()[pool], 1)
	for range n {
		got, err := pc.acquire(e.t.Context(), 1)
		if err != nil {
			e.t.Fatal(err)
		}
		if len(got.claims) == 0 {
			break
		}
		c := got.claims[0]
		j, err := e.reader.load(e.t.Context(), c.p, c.id)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, who := range []string{j.Org, j.Org + " " + j.User} {
			jobs[who]++
			tokens[who] += j.Tokens
		}
		if err := c.finish(e.t.Context(), Succeeded, Verdict{}, ""); err != nil {
			e.t.Fatal(err)
		}
	}
	return jobs, tokens
}

func TestOrgsShareThenUsers(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Weights: map[string]int{"gold": 200, "big u0": 300}}, Pool{ID: "p"})
	for i := range 60 { // the hog splits into users, which gains it nothing
		for u := range 3 {
			e.put(e.job("p", "big", fmt.Sprintf("u%d", u), Async, 1000))
		}
		if i < 60 {
			e.put(e.job("p", "small", "u", Async, 100))
			e.put(e.job("p", "gold", "u", Async, 1000))
		}
	}
	_, tokens := e.drain("p", 100)
	if tokens["gold"] < 2*tokens["big"]-3000 || tokens["gold"] > 2*tokens["big"]+3000 {
		t.Errorf("gold got %d tokens, big %d: want twice as many", tokens["gold"], tokens["big"])
	}
	if tokens["small"] != 6000 && tokens["small"] < tokens["big"]-2000 {
		t.Errorf("small got %d tokens, big %d", tokens["small"], tokens["big"])
	}
	u0, u1 := tokens["big u0"], tokens["big u1"]
	if u0 < 3*u1-3000 || u0 > 3*u1+3000 {
		t.Errorf("big u0 got %d tokens, u1 %d: want three times as many", u0, u1)
	}
}

func TestTokenShares(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 100}, Pool{ID: "p", MaxJobs: -1})
	for range 60 {
		e.put(e.job("p", "heavy", "u", Async, 8000))
		for range 8 {
			e.put(e.job("p", "light", "u", Async, 1000))
		}
	}
	_, tokens := e.drain("p", 400)
	if ratio := float64(tokens["heavy"]) / float64(tokens["light"]); ratio < 0.95 || ratio > 1.05 {
		t.Errorf("heavy got %d tokens, light %d", tokens["heavy"], tokens["light"])
	}
}

// An org that keeps coming back with a single job must not get ahead of those whose jobs
// wait, which would happen if its past were forgotten whenever it has none.
func TestComingBackGainsNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	for range 100 {
		e.put(e.job("p", "patient", "u", Async, 1000))
	}
	pc := newPacer(e.Queue, e.settings.pools()["p"], 1)
	got := make(map[string]int64)
	e.put(e.job("p", "again", "u", Async, 8000))
	for range 60 {
		a, err := pc.acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		c := a.claims[0]
		j, _ := e.reader.load(t.Context(), c.p, c.id)
		got[j.Org] += j.Tokens
		if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
			t.Fatal(err)
		}
		if j.Org == "again" {
			e.put(e.job("p", "again", "u", Async, 8000))
		}
	}
	if got["again"] > got["patient"]+9000 {
		t.Errorf("again got %d tokens, patient %d", got["again"], got["patient"])
	}
}

// A latecomer starts level with the others and is not compensated for what they had before.
func TestLatecomersStartLevel(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	for range 60 {
		e.put(e.job("p", "early", "a", Async, 100))
	}
	e.drain("p", 30)
	for range 30 {
		e.put(e.job("p", "late", "a", Async, 100))
		e.put(e.job("p", "early", "b", Async, 100))
	}
	jobs, _ := e.drain("p", 40)
	if jobs["late"] < 19 || jobs["late"] > 21 {
		t.Errorf("late got %d of 40 picks", jobs["late"])
	}
	if a, b := jobs["early a"], jobs["early b"]; a < 8 || b < 8 {
		t.Errorf("of early, a got %d and b %d picks", a, b)
	}
}

func TestClassesHaveTheirShare(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Grace: time.Hour}, Pool{ID: "p"})
	for range 210 {
		for class := Interactive; class <= Batch; class++ {
			e.put(e.job("p", class.String(), "u", class, 10))
		}
	}
	jobs, _ := e.drain("p", 200)
	if jobs["async"] < 19 || jobs["async"] > 21 || jobs["batch"] < 9 || jobs["batch"] > 11 {
		t.Errorf("got %v of 200 picks, want a tenth async and a twentieth batch", jobs)
	}
}

func TestLiveCallsDoNotOvertakeTheirFlow(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 1000})
	e.put(e.job("p", "acme", "ann", Interactive, 10))
	if _, err := e.Take(t.Context(), "p", "c1", Flow{"acme", "ann"}, 1); err == nil {
		t.Error("overtook its own flow")
	}
	if _, err := e.Take(t.Context(), "p", "c2", Flow{"acme", "an"}, 1); err != nil {
		t.Errorf("another flow: %v", err)
	}
}

func TestParkAndProbe(t *testing.T) {
	t.Parallel()
	for _, scope := range []Scope{ParkFlow, ParkOrg} {
		e := newEnv(t, Options{}, Pool{ID: "p"})
		ctx := t.Context()
		now := simStart
		e.at(now)
		var ann []*Job
		for range 3 {
			ann = append(ann, e.put(e.job("p", "acme", "ann", Async, 10)))
			now += time.Millisecond
			e.at(now)
		}
		var bob *Job
		if scope == ParkFlow {
			bob = e.put(e.job("p", "acme", "bob", Async, 10))
		}
		c := e.claimOne("p", ann[0])
		if err := c.release(ctx, Verdict{Kind: Park, Wait: 10 * time.Second, Scope: scope, Unused: true}, "0"); err != nil {
			t.Fatal(err)
		}
		got := e.claim("p", 5)
		if scope == ParkFlow {
			if len(got) != 1 || got[0].id != bob.ID {
				t.Fatalf("flow parked, %d claims", len(got))
			}
		} else if len(got) != 0 {
			t.Fatalf("org parked, %d claims", len(got))
		}
		e.put(e.job("p", "acme", "ann", Async, 10)) // a put does not wake it
		if got := e.claim("p", 5); len(got) != 0 {
			t.Fatalf("%d claims after a put", len(got))
		}
		now += 10 * time.Second
		e.at(now)
		got = e.claim("p", 5) // one probe
		if len(got) != 1 || got[0].id != ann[0].ID {
			t.Fatalf("%d claims at the wake, want the first job alone", len(got))
		}
		if err := got[0].release(ctx, Verdict{Kind: Park, Wait: 10 * time.Second, Scope: scope, Unused: true}, "0"); err != nil {
			t.Fatal(err)
		}
		if got := e.claim("p", 5); len(got) != 0 {
			t.Fatalf("%d claims after the probe was refused", len(got))
		}
		now += 10 * time.Second
		e.at(now)
		if err := e.claimOne("p", ann[0]).Start(ctx); err != nil { // admitted
			t.Fatal(err)
		}
		if got := e.claim("p", 9); len(got) != 3 {
			t.Errorf("%d claims after the probe was admitted, want the other 3", len(got))
		}
	}
}

// TestRefusedPicksKeepTheirTurn: two users have equal shares of their org's limit, which admits three jobs in each
// window. A job that never fits keeps its turn for a while only.
func TestRefusedPicksKeepTheirTurn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	now := simStart
	e.at(now)
	const windows, each = 8, 3
	for range windows * each {
		e.put(e.job("p", "acme", "ann", Async, 10))
		e.put(e.job("p", "acme", "bob", Async, 10))
	}
	refuse := func(c *Claim) {
		t.Helper()
		if err := c.release(ctx, Verdict{Kind: Park, Scope: ParkOrg, Wait: 10 * time.Second, Unused: true}, "0"); err != nil {
			t.Fatal(err)
		}
		now += 10 * time.Second
		e.at(now)
	}
	ran := map[string]int{}
	end := func(c *Claim) {
		t.Helper()
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		ran[c.Job.User]++
		if err := c.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	for range windows {
		for range each {
			end(e.claim("p", 1)[0])
		}
		refuse(e.claim("p", 1)[0])
	}
	if ran["ann"] != ran["bob"] {
		t.Errorf("ran %v, want as many of each", ran)
	}
	large := e.claim("p", 1)[0]
	for n := 0; ; n++ {
		c := large
		if n > 0 {
			c = e.claim("p", 1)[0]
		}
		if c.id != large.id {
			return
		}
		if n > 2*turnKept/micro/10 {
			t.Fatalf("%s's job is tried for the %dth time, and others wait", c.Job.User, n)
		}
		refuse(c)
	}
}

// expect returns the place of a job, without limits.
func (e *env) expect(j *Job) Place {
	e.t.Helper()
	at, err := e.Expect(e.t.Context(), guard.Rooms{}, j)
	if err != nil {
		e.t.Fatal(err)
	}
	return at
}

func TestPosition(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 100, Burst: 1}, Pool{ID: "p", RPM: 60})
	var mine *Job
	for i := range 5 {
		j := e.put(e.job("p", "a", "u", Async, 10))
		if i == 2 {
			mine = j
		}
		e.put(e.job("p", "b", "u", Async, 10))
		e.put(e.job("p", "b", "v", Async, 10))
	}
	near := func(eta, want time.Duration) bool { return (eta - want).Abs() < time.Second }
	if at := e.expect(mine); at.Ahead != 4 && at.Ahead != 5 || !near(at.ETA, time.Duration(at.Ahead)*time.Second) {
		t.Errorf("%d ahead, %s; want 4 or 5 of the two orgs, at one a second", at.Ahead, at.ETA)
	}
	if err := e.Block(t.Context(), "p", time.Minute); err != nil {
		t.Fatal(err)
	}
	e.forecasts.fresh = 0
	if at := e.expect(mine); at.ETA < 59*time.Second || at.Cause != "pool:p" {
		t.Errorf("%s for %s while blocked for a minute", at.ETA, at.Cause)
	}
}

// TestManyLanesOfAFlow checks that a flow's jobs run in the order in which they were put,
// and that unparked ones run however many keys and models there are.
func TestManyLanesOfAFlow(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 100}, Pool{ID: "p"})
	const lanes = 100
	var jobs []*Job
	for i := range 2 * lanes {
		j := e.job("p", "acme", "svc", Async, 10)
		j.Key, j.Model = fmt.Sprint("k", i%4), fmt.Sprint("m", i%lanes/4)
		jobs = append(jobs, e.put(j))
	}
	parked := 40
	for i, c := range e.claim("p", lanes) {
		if c.id != jobs[i].ID {
			t.Fatalf("claim %d is that of another job", i)
		}
		var err error
		if i < parked { // the limit of its key and model has no room
			err = c.release(t.Context(), Verdict{Kind: Park, Scope: ParkKeyModel, Wait: time.Hour, Unused: true}, "0")
		} else {
			err = c.finish(t.Context(), Succeeded, Verdict{}, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rest := e.claim("p", lanes)
	if len(rest) != lanes-parked {
		t.Fatalf("%d claims, want the %d jobs that nothing holds back", len(rest), lanes-parked)
	}
	for i, c := range rest {
		if c.id != jobs[lanes+parked+i].ID {
			t.Fatalf("claim %d is that of another job", lanes+i)
		}
	}
	if at := e.expect(jobs[lanes+parked-1]); at.Ahead != 2*parked-1 {
		t.Errorf("%d jobs before the last that waits, want %d", at.Ahead, 2*parked-1)
	}
}

// TestWeightsAreReadAsNeeded checks that acquire gets the name of the weights and reads
// only those of the flows whose turn it is, so that its cost does not grow with their
// number. Weights are written if they are missing, and under a new name when they change.
func TestWeightsAreReadAsNeeded(t *testing.T) {
	t.Parallel()
	weights := map[string]int{"gold": 300}
	for i := range 3000 {
		weights[fmt.Sprintf("org%d user%d", i%100, i)] = 50
	}
	e := newEnv(t, Options{Weights: weights, OrgShare: 100}, Pool{ID: "p"})
	ratio := func(want int64) {
		t.Helper()
		for range 40 {
			e.put(e.job("p", "gold", "u", Async, 100))
			e.put(e.job("p", "iron", "u", Async, 100))
		}
		jobs, _ := e.drain("p", 40)
		if got, other := jobs["gold"], jobs["iron"]; got < want*other-want-1 || got > want*other+want+1 {
			t.Errorf("gold got %d jobs and iron %d, want %d to 1", got, other, want)
		}
		e.drain("p", 100)
	}
	ratio(3)
	if err := e.rdb.Del(t.Context(), weightsKey("p", e.settings.now().weights)).Err(); err != nil { // lost
		t.Fatal(err)
	}
	ratio(3)
	weights["gold"] = 100
	if err := e.SetWeights(weights); err != nil {
		t.Fatal(err)
	}
	ratio(1)
	if n := e.rdb.HLen(t.Context(), weightsKey("p", e.settings.now().weights)).Val(); n != int64(len(weights))+1 {
		t.Errorf("%d weights in Redis, want %d", n, len(weights))
	}
	if left := e.rdb.PTTL(t.Context(), weightsKey("p", e.settings.now().weights)).Val(); left <= weightsLife-time.Minute {
		t.Errorf("the weights in use last for %s", left)
	}
	if n := len(e.settings.now().weights); n > 20 {
		t.Errorf("acquire is given %d bytes of weights", n)
	}
}

// TestAParkNamesItsLimit: all jobs that a limit holds back wait for it, also those that were not refused
// themselves, until one of them is admitted.
func TestAParkNamesItsLimit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.put(e.job("p", "acme", "ann", Async, 1))
	waiting := e.put(e.job("p", "acme", "ann", Async, 1))
	waits := func(want budget.Cause) {
		t.Helper()
		j, err := e.Job(ctx, "acme", waiting.ID)
		if err != nil {
			t.Fatal(err)
		}
		at, err := e.Place(ctx, guard.Rooms{}, j)
		if err != nil || at.Cause != want {
			t.Errorf("got %q, %v; want %q", at.Cause, err, want)
		}
	}
	e.forecasts.fresh = 0
	waits("worker")
	refused := Verdict{Kind: Park, Wait: 10 * time.Second, Unused: true, Cause: "limit:usd"}
	if err := e.claim("p", 1)[0].release(ctx, refused, "0"); err != nil {
		t.Fatal(err)
	}
	waits("limit:usd")
	if err := e.Unpark(ctx, map[string]bool{"acme": true}); err != nil {
		t.Fatal(err)
	}
	c := e.claim("p", 1)[0]
	waits("limit:usd") // the job that was picked is not admitted yet
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	waits("worker")
}
