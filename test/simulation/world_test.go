package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// dice is a random number generator for one purpose.
type dice struct{ *rand.Rand }

// newDice returns a generator seeded by these words.
func newDice(words ...uint64) dice {
	hash := fnv.New64a()
	fmt.Fprint(hash, words)
	return dice{rand.New(rand.NewPCG(words[0], hash.Sum64()))}
}

// chance returns true with this probability, per mille.
func (d dice) chance(perMille int) bool { return d.IntN(1000) < perMille }

// around returns a random duration with this mean, to the microsecond.
func (d dice) around(mean time.Duration) time.Duration {
	return min(time.Duration(d.ExpFloat64()*float64(mean)), 6*mean).Truncate(time.Microsecond) + time.Microsecond
}

// world is one run.
type world struct {
	seed uint64
	fam  *family
	dice dice
	ctx  context.Context

	store *store
	link  *link
	procs []*process
	step  int
	began time.Time
	quiet bool // the faults have ended

	money
	pools

	mu     sync.Mutex
	ops    int
	log    []string
	broken []string // broken rules, with the details

	buried []*process
	away   time.Time // no process reaches the store until then
	silent bool      // without an error
	calm   time.Time // since when no fault affects the store
}

// note adds a line to the log.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.began)
	w.log = append(w.log, fmt.Sprintf("%4d %12.6f %s", w.step, at.Seconds(), fmt.Sprintf(format, args...)))
}

// fail records a broken rule; the run ends after the step.
func (w *world) fail(rule, format string, args ...any) {
	text := rule + ": " + fmt.Sprintf(format, args...)
	if slices.Contains(strings.Split(os.Getenv("IGNORE"), ","), rule) {
		w.note("ignored: %s", text)
		return
	}
	w.note("BROKEN %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, text)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.broken) > 0
}

// hash returns a hash of the run, to compare two runs.
func (w *world) hash() uint64 {
	hash := fnv.New64a()
	for _, line := range w.log {
		fmt.Fprintln(hash, line)
	}
	return hash.Sum64()
}

// do runs fn for a process, with its own random numbers, until it returns or the process dies.
func (w *world) do(p *process, fn func(ctx context.Context, d dice)) {
	w.ops++
	d := newDice(w.seed, uint64(w.ops), 7)
	go fn(p.ctx, d)
}

// sleep lets time pass for a process. If the process has died, it does not return.
func (w *world) sleep(p *process, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.link.over:
		runtime.Goexit()
	}
	p.alive()
}

// until runs the simulation until t: it executes the link's commands one by one, each when all
// goroutines are idle.
func (w *world) until(t time.Time) {
	for {
		synctest.Wait()
		now := time.Now()
		r, soon := w.link.next(now)
		if r != nil {
			w.serve(r)
			continue
		}
		if !now.Before(t) {
			return
		}
		wake := t
		if !soon.IsZero() && soon.Before(wake) {
			wake = soon
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-w.link.come:
		case <-timer.C:
		}
		timer.Stop()
		if err := w.store.expire(w.ctx); err != nil {
			w.fail("harness", "expire: %v", err)
			return
		}
	}
}

// serve executes a command that has reached the store, or delivers its reply.
func (w *world) serve(r *request) {
	if r.ran {
		if !r.given {
			r.done <- r.err
		}
		return
	}
	switch way := r.p.way(time.Now()); {
	case r.fate.lost, way == hole, r.p.isDead() && r.rank%2 == 0:
		return
	case way == refused:
		r.ran, r.err = true, fail(r.cmds, errCut)
		r.done <- r.err
		return
	}
	if r.fate.twice && !r.given {
		for _, cmd := range r.cmds {
			extra := copyOf(w.ctx, cmd)
			_ = w.store.run(w.ctx, extra)
			w.learned(extra)
		}
	}
	for _, cmd := range r.cmds {
		if err := w.store.run(w.ctx, cmd); err != nil && r.err == nil {
			r.err = err
		}
		w.learned(cmd)
	}
	if r.err == nil && renews(r.cmds[0]) {
		r.p.heard(time.Now())
	}
	r.ran = true
	switch {
	case r.fate.deaf, r.given:
	case r.back.After(time.Now()):
		w.link.again(r)
	default:
		r.done <- r.err
	}
}

// run is the complete run.
func (w *world) run() {
	for w.step = 1; w.step <= w.fam.steps && !w.failed(); w.step++ {
		w.act()
		w.until(time.Now().Add(w.dice.around(w.fam.pause)))
		w.check()
	}
	if !w.failed() {
		w.rest()
	}
}

// act does one random thing of the family, by weight.
func (w *world) act() {
	total := 0
	for _, a := range w.fam.acts {
		total += a.weight
	}
	n := w.dice.IntN(total)
	for _, a := range w.fam.acts {
		if n -= a.weight; n < 0 {
			a.do(w)
			return
		}
	}
}

// check checks the invariants.
func (w *world) check() {
	if err := errors.Join(w.checkMoney(), w.checkPools()); err != nil {
		w.fail("harness", "%v", err)
	}
}

// rest ends the faults and lets everything finish.
func (w *world) rest() {
	w.quiet = true
	w.note("the faults end")
	w.link.worsen(odds{})
	w.heal()
	for n := 0; n < 40 || w.busy() && n < 400; n++ {
		w.until(time.Now().Add(w.fam.rest / 40))
		w.check()
		if w.failed() {
			return
		}
	}
	w.note("the end")
	w.usedAgain()
	if err := errors.Join(w.settled(), w.drained(), w.leaks()); err != nil {
		w.fail("harness", "%v", err)
	}
}

// simulate runs one seed in a bubble of virtual time.
func simulate(t *testing.T, addr string, seed uint64, fam *family) *world {
	w := &world{seed: seed, fam: fam}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w.ctx, w.began, w.dice, w.link = ctx, time.Now(), newDice(seed, 1), newLink(seed)
		var err error
		if w.store, err = openStore(ctx, addr); err != nil {
			t.Fatal(err)
		}
		w.set()
		w.run()
		all := append(w.procs, w.buried...)
		for _, p := range all {
			p.kill()
		}
		close(w.link.over)
		cancel()
		time.Sleep(10 * time.Minute) // for goroutines that retry
		_ = w.store.rdb.Close()
		for _, p := range all {
			p.close()
		}
	})
	return w
}
