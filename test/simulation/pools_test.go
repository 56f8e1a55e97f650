package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

const poolID = "openai"

// pools is the run's own knowledge of jobs and of the provider's quota.
type pools struct {
	pool  queue.Pool
	jobs  []*job
	jobBy map[string]*job
	sends []*send
	storm time.Time // the provider refuses everything until then
}

// send is a request that the provider has received.
type send struct {
	at     time.Time
	tokens int64
	p      *process
	done   bool
	apart  bool
}

// job is the true state of a waiting call.
type job struct {
	id, org, user string
	p             *process // of its caller, if it is interactive
	class         queue.Class
	tokens        int64
	put           time.Time
	known         bool // Put has confirmed it
	apart         bool // its caller's proxy was disconnected for too long
	away          bool // its caller is not connected
	returning     bool // but about to reconnect
	left          bool // its caller gave up or cancelled it
	state         string
	code          string
	parked        bool // a limit has refused it
	runs          []*run
	most          time.Duration // maximum wait, behind the jobs submitted before it
}

// run is one attempt at a job.
type run struct {
	p     *process
	done  bool // the worker has returned its verdict
	apart bool
}

// due reports whether a job has yet to end.
func (j *job) due() bool { return j.known && !queue.State(j.state).Terminal() }

// send records a request, and checks the quota as the provider counts it.
func (w *world) send(p *process, tokens int64) *send {
	now := time.Now()
	w.mu.Lock()
	one := &send{at: now, tokens: tokens, p: p}
	w.sends = append(w.sends, one)
	var requests, sum int64
	open := 0
	for _, s := range slices.Backward(w.sends) {
		if now.Sub(s.at) < time.Minute {
			requests, sum = requests+1, sum+s.tokens
		}
		if !s.done && !s.apart && !s.p.isDead() {
			open++
		}
	}
	w.mu.Unlock()
	if !w.lost.IsZero() && now.Sub(w.lost) < 2*time.Minute {
		return one
	}
	if q := w.pool; q.RPM > 0 && requests > q.RPM || q.TPM > 0 && sum > q.TPM {
		w.fail("the quota holds", "%d requests of %d tokens in a minute, of %d and %d", requests, sum, q.RPM, q.TPM)
	}
	if q := w.pool; q.Concurrency > 0 && open > q.Concurrency {
		w.fail("the concurrency holds", "%d requests at once of %d", open, q.Concurrency)
	}
	return one
}

// refused reports whether the provider refuses a request, and reports the refusal to the pool.
func (w *world) refused(p *process, model string) bool {
	if !time.Now().Before(w.storm) {
		return false
	}
	once, cancel := context.WithTimeout(p.ctx, time.Second)
	defer cancel()
	_, _ = p.queue.Quota().Observe(once, poolID, quota.Head{Model: model, Status: http.StatusTooManyRequests, Sent: time.Now()})
	p.alive()
	w.note("%s is refused by the provider", p.name)
	return true
}

// lookScript reads the state of a pool from its keys: the counted jobs and bytes, the number of
// claims without a place, and the id, state and code of each job.
var lookScript = redis.NewScript(`
local pool, now = ARGV[1], tonumber(ARGV[2])
local function key(name) return 'lg:{' .. pool .. '}:' .. name end
local out = { redis.call('HGET', key('size'), 'jobs') or '0', 0 }
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('claims'), now, '+inf')) do
  if not redis.call('ZSCORE', key('slots'), id) then out[2] = out[2] + 1 end
end
for _, k in ipairs(redis.call('KEYS', key('job:*'))) do
  local h = redis.call('HMGET', k, 'state', 'code')
  out[#out + 1] = string.sub(k, #key('job:') + 1) .. ' ' .. (h[1] or '-') .. ' ' .. (h[2] or '-')
end
return out`)

// checkPools compares a pool's counts and records with the true state.
func (w *world) checkPools() error {
	if w.pool.ID == "" {
		return nil
	}
	reply, err := lookScript.Run(w.ctx, w.store.rdb, nil, poolID, w.store.now().UnixMicro()).Slice()
	if err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	counted, _ := strconv.Atoi(fmt.Sprint(reply[0]))
	if n := reply[1].(int64); n > 0 {
		w.fail("counts equal what they count", "%d jobs that run have no place", n)
	}
	there, waiting := map[string]bool{}, 0
	for _, line := range reply[2:] {
		f := strings.Fields(line.(string))
		there[f[0]] = true
		if !queue.State(f[1]).Terminal() {
			waiting++
		}
		if j := w.jobBy[f[0]]; j != nil {
			w.became(j, f[1], f[2])
		}
	}
	if counted != waiting {
		w.fail("counts equal what they count", "%d jobs are counted, %d wait or run", counted, waiting)
	}
	for _, j := range w.jobs {
		if j.due() && !there[j.id] && !w.mayForget(j) {
			w.fail("no job is lost", "job %s is gone, it was %s", j.id[len(j.id)-6:], j.state)
		}
	}
	return w.checkWaits()
}

// mayForget reports whether the store may have lost a job.
func (w *world) mayForget(j *job) bool { return !w.lost.IsZero() && j.put.Before(w.lost) }

// became records a job's state.
func (w *world) became(j *job, state, code string) {
	if j.state == state {
		return
	}
	short := j.id[len(j.id)-6:]
	w.note("job %s is %s %s", short, state, code)
	if queue.State(j.state).Terminal() && !w.mayForget(j) {
		w.fail("a job ends once", "job %s was %s and is %s", short, j.state, state)
	}
	j.state, j.code = state, code
	unheard := w.link.lossy() && j.p.silentLately(time.Now())
	if code == "caller_gone" && !j.left && !j.away && !j.apart && !j.p.isDead() && !w.mayForget(j) && !unheard {
		w.fail("a connected caller keeps its job", "job %s is dropped while its caller is connected", short)
	}
}

// checkWaits looks for jobs that wait although neither a limit nor a fault blocks them.
func (w *world) checkWaits() error {
	if w.fam.patience == 0 {
		return nil
	}
	var ahead int64
	for _, j := range w.jobs {
		if !j.due() {
			continue
		}
		ahead += j.tokens
		most := w.fam.patience
		if w.pool.TPM > 0 { // a tenth of the quota is reserved for asynchronous jobs
			most += time.Duration(10 * float64(ahead) / float64(w.pool.TPM) * float64(time.Minute))
		}
		j.most = max(j.most, most)
		if !j.parked && len(j.runs) == 0 && time.Since(j.put) > j.most {
			w.fail("a waiting job starts", "job %s of %d tokens waits for %s", j.id[len(j.id)-6:], j.tokens, time.Since(j.put))
			return nil
		}
	}
	return nil
}

// drained checks the pool when everything has ended.
func (w *world) drained() error {
	if w.pool.ID == "" {
		return nil
	}
	for _, j := range w.jobs {
		if j.due() && !w.mayForget(j) {
			w.fail("every job ends", "job %s of %d tokens is %s", j.id[len(j.id)-6:], j.tokens, j.state)
		}
	}
	for _, name := range []string{"slots", "claims", "present", "due", "wait:interactive", "wait:async", "wait:batch"} {
		n, err := w.store.rdb.ZCard(w.ctx, "lg:{"+poolID+"}:"+name).Result()
		if err != nil {
			return fmt.Errorf("pool: %w", err)
		}
		if n > 0 {
			w.fail("nothing is left", "%d members of %s at the end", n, name)
		}
	}
	sizes, err := w.store.rdb.HGetAll(w.ctx, "lg:{"+poolID+"}:size").Result()
	if err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	for field, n := range sizes {
		if strings.HasPrefix(field, "h ") && n != "0" {
			w.fail("nothing is left", "%s jobs of high priority are counted as waiting: %s", n, field)
		}
	}
	return nil
}

func poolOptions() queue.Options { return queue.Options{OrgShare: 100, Log: discard} }

// newQueue creates a process's client of the pool.
func (p *process) newQueue(w *world) error {
	if w.pool.ID == "" {
		return nil
	}
	var err error
	p.queue, err = queue.New(redistest.DB(p.rdb), []queue.Pool{w.pool}, poolOptions())
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	p.puts = make(chan struct{}, 1)
	carry := func(ctx context.Context, c *queue.Claim) queue.Verdict { return w.carry(ctx, p, c) }
	p.worker = queue.NewWorker(p.queue, carry, queue.WorkerOptions{})
	p.every(p.queue.Step)
	p.every(p.worker.Keep)
	w.do(p, func(ctx context.Context, d dice) {
		for {
			w.sleep(p, w.fam.look/2+time.Duration(d.Int64N(int64(w.fam.look))))
			if err := p.worker.Step(ctx, poolID, 1+d.IntN(5)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				w.note("%s looks for jobs: %v", p.name, err)
			}
			p.alive()
		}
	})
	return nil
}
