package queue

import "sync"

// orgRuns counts the jobs of each org that run in this process. The zero value is ready to
// use. It is safe for concurrent use.
type orgRuns struct {
	mu   sync.Mutex
	orgs map[string]*orgRun
}

// orgRun counts one org's jobs. It exists while this process has claimed a job of the org.
type orgRun struct {
	all     *orgRuns
	org     string
	claimed int
	started int // claimed jobs whose calls have started
	ended   int // calls that have ended, together with their holds
}

// enter counts a claimed job until leave.
func (r *orgRuns) enter(org string) *orgRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.orgs == nil {
		r.orgs = make(map[string]*orgRun)
	}
	run := r.orgs[org]
	if run == nil {
		run = &orgRun{all: r, org: org}
		r.orgs[org] = run
	}
	run.claimed++
	return run
}

func (o *orgRun) leave() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.claimed--
	if o.claimed == 0 {
		delete(o.all.orgs, o.org)
	}
}

// start counts a call that begins; end counts one whose hold has ended.
func (o *orgRun) start() { o.count(1, 0) }
func (o *orgRun) end()   { o.count(-1, 1) }

func (o *orgRun) count(started, ended int) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.started += started
	o.ended += ended
}

// now returns how many calls are running and how many have ended so far.
func (o *orgRun) now() (running, ended int) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	return o.started, o.ended
}
