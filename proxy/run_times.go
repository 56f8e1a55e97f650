package proxy

import (
	"hash/maphash"
	"sync"
	"time"
)

// runTimes estimates how long the calls of an org for a model run, from finished ones. A call that
// starts too late to be answered while its caller is connected costs money for nothing. It is safe
// for concurrent use.
type runTimes struct {
	seed maphash.Seed
	mu   sync.Mutex
	list [256]runTime // several pairs may share an entry
}

// runTime is an estimate as TCP makes of round trips: a mean and a mean deviation.
type runTime struct{ mean, deviation time.Duration }

func (r *runTimes) of(org, model string) *runTime {
	var h maphash.Hash
	h.SetSeed(r.seed)
	for _, part := range [...]string{org, model} {
		h.WriteString(part)
		h.WriteByte(0)
	}
	return &r.list[h.Sum64()%uint64(len(r.list))]
}

// add learns from the running time of a finished call.
func (r *runTimes) add(org, model string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of(org, model)
	if t.mean == 0 {
		*t = runTime{mean: took, deviation: took / 2}
		return
	}
	t.deviation += ((took - t.mean).Abs() - t.deviation) / 4
	t.mean += (took - t.mean) / 8
}

// leastRun is the minimum estimate after a call outlasted its caller.
const leastRun = 100 * time.Millisecond

// outlasted learns from a call that was still running when its caller left.
func (r *runTimes) outlasted(org, model string, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of(org, model)
	t.mean = max(t.mean, 2*after, leastRun)
}

// most returns how long nearly every call runs at most; 0 if nothing is known.
func (r *runTimes) most(org, model string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of(org, model)
	return t.mean + 4*t.deviation
}
