package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// enterNow takes a place that must be free.
func enterNow(t *testing.T, f *fair, org, user string) *place {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a free place is granted immediately
	p := &place{fair: f, org: org, user: user}
	f.mu.Lock()
	p.queue(false)
	f.mu.Unlock()
	select {
	case <-p.ready:
		return p
	default:
		t.Fatalf("no place for %s: %v", org, p.await(ctx, nil))
	}
	return nil
}

// queueUp creates waiting places, in this order.
func queueUp(f *fair, org, user string, n int) (list []*place) {
	for range n {
		p := &place{fair: f, org: org, user: user}
		f.mu.Lock()
		p.queue(false)
		f.mu.Unlock()
		list = append(list, p)
	}
	return list
}

// TestPlacesGoRoundOrgs checks that however much one org has waiting, the next place goes
// to an org with fewer places, and to its user with fewer.
func TestPlacesGoRoundOrgs(t *testing.T) {
	t.Parallel()
	f := newFair(2)
	var got []string
	f.granted = func(org string) { got = append(got, org) }
	first := []*place{enterNow(t, f, "hog", "a"), enterNow(t, f, "hog", "a")}
	hog := queueUp(f, "hog", "a", 50)
	other := queueUp(f, "hog", "b", 1)
	small := queueUp(f, "small", "c", 2)
	first[0].end()
	if want := []string{"hog", "hog", "small"}; !slices.Equal(got, want) {
		t.Fatalf("the places went to %v, want %v", got, want)
	}
	first[1].end() // small has one place, hog none
	if want := "hog"; got[3] != want || !other[0].open {
		t.Errorf("the place went to %v, want %s's user who has none", got[3:], want)
	}
	for _, p := range slices.Concat(hog, other, small) {
		p.end()
	}
	if f.free != 2 || len(f.orgs) != 0 {
		t.Errorf("%d places are free and %d orgs known, want 2 and none", f.free, len(f.orgs))
	}
}

// TestWorkThatPassesItsPlaceComesFirst checks that started work continues before the other
// work of its user, so that few pieces are in progress at a time.
func TestWorkThatPassesItsPlaceComesFirst(t *testing.T) {
	t.Parallel()
	f := newFair(1)
	begun := enterNow(t, f, "hog", "a")
	waiting := queueUp(f, "hog", "a", 1)
	if begun.due() {
		t.Error("the place is passed to the same user's other work")
	}
	small := queueUp(f, "small", "c", 1)
	done := make(chan error, 1)
	go func() { done <- begun.pass(t.Context()) }()
	redistest.Came(t, small[0].ready)
	small[0].end()
	if err := redistest.Came(t, done); err != nil {
		t.Fatal(err)
	}
	if !begun.open || waiting[0].open {
		t.Error("work that has not begun came first")
	}
}

// TestPreemption checks that an org with more than its share of places must give up as many
// as make the shares equal, and no more.
func TestPreemption(t *testing.T) {
	t.Parallel()
	f := newFair(8)
	for range 8 {
		enterNow(t, f, "hog", "a")
	}
	queueUp(f, "small", "c", 100)
	if n := len(f.preempted("hog", "a")); n != 4 {
		t.Errorf("hog is to give up %d of 8 places, want 4", n)
	}
	queueUp(f, "hog", "b", 100)
	if n := len(f.preempted("hog", "a")); n != 6 {
		t.Errorf("hog's only user with places is to give up %d, want 6: two more for another user", n)
	}
	stop := make(chan struct{}, 1)
	stop <- struct{}{}
	if _, err := f.enter(t.Context(), "hog", "a", stop); !errors.Is(err, errPreempted) || f.waiting("hog", "a") != 0 {
		t.Errorf("%v, and %d wait; want %v and none", err, f.waiting("hog", "a"), errPreempted)
	}
}

// grants are the orgs whose work got a place, in order.
type grants struct {
	mu   sync.Mutex
	orgs []string
}

func (g *grants) add(org string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.orgs = append(g.orgs, org)
}

func (g *grants) all() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.orgs)
}

// TestNoOrgHoldsUpAnothersValidation checks that if an org has more heavy, failing batches
// than are driven at a time, a batch of another org is validated as soon as the part of
// work in progress has ended.
func TestNoOrgHoldsUpAnothersValidation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addOrg("small")
	run := NewRunner(r.store, r.options())
	log := &grants{}
	run.heavy = newFair(1)
	failed := -1.0 // number of ended heavy batches when the small one gets its first place
	run.heavy.granted = func(org string) {
		if log.add(org); org == "small" && failed < 0 {
			failed = testutil.ToFloat64(run.metrics.ended.WithLabelValues(string(Failed)))
		}
	}
	blocker := enterNow(t, run.heavy, "blocker", "x")
	r.background(run.Run)

	heavy := r.upload(chats(5*pageLines) + strings.Replace(chat("bad", "x"), "gpt-4o-mini", "another", 1))
	for range drivenAtOnce + 6 {
		r.create(heavy, wire.ChatCompletions)
	}
	redistest.Eventually(t, "as many batches driven as there are places", func() bool {
		return run.heavy.waiting("acme", "alice") == drivenAtOnce
	})
	small := r.createFor("small", chats(1))
	redistest.Eventually(t, "another org's batch driven", func() bool { return run.heavy.waiting("small", "bob") == 1 })
	blocker.end()

	redistest.Eventually(t, "the small batch validated", func() bool {
		b, err := r.store.Batch(t.Context(), "small", "bob", small.ID)
		return err == nil && b.Status == InProgress
	})
	run.heavy.mu.Lock()
	defer run.heavy.mu.Unlock()
	before := slices.Index(log.all()[1:], "small") // after the blocker's
	if before < 0 || before > 1 || failed > 0 {
		t.Errorf("%d places of the other org came first, and %v of its batches to their end; want one part of one",
			before, failed)
	}
}

// createFor creates a batch of another org's user bob.
func (r *rig) createFor(org, text string) *Batch {
	r.t.Helper()
	bob := files.Owner{Org: org, User: "bob"}
	up, err := r.files.Begin(r.t.Context(), bob, files.NewID())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := fmt.Fprint(up, text); err != nil {
		r.t.Fatal(err)
	}
	f, err := up.Commit(r.t.Context(), "in.jsonl", files.Batch, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := r.store.Create(r.t.Context(), Request{
		Owner: Owner{Org: org, User: "bob", Key: "k2"}, File: f, Endpoint: wire.ChatCompletions,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// addOrg adds an org without limits.
func (r *rig) addOrg(id string) {
	p := *r.guard.Policy()
	p.Orgs = map[string]*guard.Org{"acme": r.org, id: {Org: settings.Org{ID: id}}}
	r.guard.SetPolicy(&p)
}
