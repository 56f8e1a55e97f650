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

// dice are random numbers that belong to one purpose.
type dice struct{ *rand.Rand }

// newDice returns the numbers that these words stand for.
func newDice(words ...uint64) dice {
	hash := fnv.New64a()
	fmt.Fprint(hash, words)
	return dice{rand.New(rand.NewPCG(words[0], hash.Sum64()))}
}

// chance reports true so many times of a thousand.
func (d dice) chance(perMille int) bool { return d.IntN(1000) < perMille }

// around is a duration of this mean, in microseconds.
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
	quiet bool // faults have ended

	money
	pools

	mu     sync.Mutex
	ops    int
	log    []string
	broken []string // rules, by what broke them

	buried []*process
	away   time.Time // until then nobody reaches the store
	silent bool      // and is not told so
	calm   time.Time // since when no fault hides the store
}

// note writes a line of the log.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.began)
	w.log = append(w.log, fmt.Sprintf("%4d %12.6f %s", w.step, at.Seconds(), fmt.Sprintf(format, args...)))
}

// fail notes that a rule is broken; the run ends with the step.
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

// hash tells two runs apart.
func (w *world) hash() uint64 {
	hash := fnv.New64a()
	for _, line := range w.log {
		fmt.Fprintln(hash, line)
	}
	return hash.Sum64()
}

// do lets a process do something, with random numbers of its own, until it is done or
// the process dies.
func (w *world) do(p *process, fn func(ctx context.Context, d dice)) {
	w.ops++
	d := newDice(w.seed, uint64(w.ops), 7)
	go fn(p.ctx, d)
}

// sleep lets time pass for something that a process does. What is dead does not go on.
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

// until lets the run go on until an instant: the link's commands one after the other,
// each when all goroutines wait.
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

// serve carries out a command that has reached the store, or hands its answer over.
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

// run is the whole of a run.
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

// act does one thing that the family has, by its weight.
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

// check looks at the invariants.
func (w *world) check() {
	if err := errors.Join(w.checkMoney(), w.checkPools()); err != nil {
		w.fail("harness", "%v", err)
	}
}

// rest ends the faults and lets everything come to an end.
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
		time.Sleep(10 * time.Minute) // for goroutines that try again
		_ = w.store.rdb.Close()
		for _, p := range all {
			p.close()
		}
	})
	return w
}
