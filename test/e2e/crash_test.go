package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

type job struct {
	ID      string  `json:"id"`
	Status  string  `json:"status"`
	Started *int64  `json:"started_at"`
	Charged *string `json:"charged_cost_usd"`
	Error   *struct {
		Code string `json:"code"`
	} `json:"error"`
	Attempts int `json:"attempts"`
}

func (j job) terminal() bool {
	return j.Status != "queued" && j.Status != "running"
}

// submit queues a call and returns its job. Like a batch client, it retries while the proxy or
// Redis is unavailable.
func submit(t *testing.T, url func() string, key, body string) job {
	t.Helper()
	for range 600 {
		a := post(url()+"/chat/completions", key, body, "Prefer", "respond-async")
		if a.err == nil && a.status == http.StatusAccepted {
			var j job
			if err := json.Unmarshal([]byte(a.body), &j); err != nil || j.ID == "" {
				t.Fatalf("202 with a body that is no job: %s", a.body)
			}
			return j
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("no job accepted within a minute")
	return job{}
}

// crashLease is the job lease in tests that kill and stop processes.
const crashLease = 3 * time.Second

// TestCrash: jobs survive SIGKILL of workers, proxies and Redis, and processes that are stopped
// for longer than their jobs' lease and then continue. Each job ends once, every result is
// readable, and no attempt is billed twice.
func TestCrash(t *testing.T) {
	t.Parallel()
	jobs, kills, stops := either(60, 5000), either(6, 50), either(1, 20)
	seed, began := uint64(time.Now().UnixNano()), time.Now()
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newStack(t, fakeprovider.Options{}, simple("[{name: w, subject: org, amount: $100, window: 1h}]")+
		fmt.Sprintf("queue: {lease: %s, max_attempts: 50}\n", crashLease)+ // a slow machine loses more attempts
		"store: {deadline: 10s, hold_lease: 10s}\n") // longer than a process stays stopped
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Delay: 150 * time.Millisecond}
	})
	n := newNemesis(s, rng)
	agree := s.watchTasks("openai")
	todo := make(chan int, jobs)
	ids := make([]string, jobs)
	var submitters sync.WaitGroup
	for range 4 {
		submitters.Go(func() {
			for i := range todo {
				ids[i] = submit(t, n.url, s.keys["alice"], chat("gpt-4o-mini", fmt.Sprint("job ", i), `"max_tokens":20`)).ID
			}
		})
	}
	strikes := kills + stops
	n.strike(kills, stops, func(done int) { // submit new jobs before every strike
		for i := jobs * done / strikes; i < jobs*(done+1)/strikes; i++ {
			todo <- i
		}
	})
	close(todo)
	redistest.Wait(t, submitters.Wait)
	struck := time.Since(began)
	for _, id := range ids {
		j := awaitJob(t, n.url(), s.keys["alice"], id, 3*time.Minute)
		if j.Status == "succeeded" {
			r := fetch(n.url()+"/jobs/"+id+"/result", s.keys["alice"])
			if r.status != http.StatusOK || !json.Valid([]byte(r.body)) {
				t.Errorf("result of %s: status %d, %v: %.200s", id, r.status, r.err, r.body)
			}
			continue
		}
		t.Errorf("job %s ended as %s (%v) after %d attempts", id, j.Status, j.Error, j.Attempts)
	}
	// Check again: a terminal state never changes.
	for _, id := range ids[:10] {
		if j := awaitJob(t, n.url(), s.keys["alice"], id, time.Minute); j.Status != "succeeded" {
			t.Errorf("job %s changed its terminal state to %s", id, j.Status)
		}
	}
	agree()
	for _, w := range n.workers { // after this, zombies have reported everything
		w.terminate()
	}
	s.billedOnce(ids, true)
	t.Logf("%d kills and %d stops in %.0f s, all over in %.0f s, seed %d", kills, stops, struck.Seconds(), time.Since(began).Seconds(), seed)
}

// nemesis runs two proxies and two workers, and kills or stops them and Redis.
type nemesis struct {
	s       *stack
	rng     *rand.Rand
	mu      sync.Mutex // guards proxies
	proxies []*process
	workers []*process
}

func newNemesis(s *stack, rng *rand.Rand) *nemesis {
	return &nemesis{s: s, rng: rng, proxies: []*process{s.proxy(), s.proxy()}, workers: []*process{s.worker(), s.worker()}}
}

// url returns the URL of one of the proxies.
func (n *nemesis) url() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proxies[time.Now().UnixNano()%2].URL
}

// strike kills and stops processes in random order, and calls before ahead of each strike with
// the number of strikes so far. A stopped process continues after a while unless it was killed
// meanwhile. strike returns once all have continued.
func (n *nemesis) strike(kills, stops int, before func(done int)) {
	var zombies sync.WaitGroup
	defer redistest.Wait(n.s.t, zombies.Wait)
	for done := range kills + stops {
		before(done)
		time.Sleep(time.Duration(200+n.rng.IntN(either(500, 900))) * time.Millisecond)
		if n.rng.IntN(kills+stops) < kills {
			kills--
			n.kill()
			continue
		}
		stops--
		zombie := n.workers[n.rng.IntN(2)]
		if n.rng.IntN(3) == 0 {
			zombie = n.proxies[n.rng.IntN(2)]
		}
		zombies.Go(func() { zombie.stopFor(2 * crashLease) })
	}
}

func (n *nemesis) kill() {
	i := n.rng.IntN(2)
	switch n.rng.IntN(3) {
	case 0:
		n.s.redis.Restart() // kills it first
	case 1:
		n.workers[i].kill()
		n.workers[i] = n.s.worker()
	default:
		n.proxies[i].kill()
		next := n.s.proxy()
		n.mu.Lock()
		n.proxies[i] = next
		n.mu.Unlock()
	}
}

func awaitJob(t *testing.T, url, key, id string, patience time.Duration) job {
	t.Helper()
	var j job
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		a := get(url+"/jobs/"+id, key)
		if a.status == http.StatusNotFound {
			t.Fatalf("job %s is lost: %s", id, a.body)
		}
		if a.err != nil || a.status != http.StatusOK {
			continue
		}
		if err := json.Unmarshal([]byte(a.body), &j); err != nil {
			t.Fatal(err)
		}
		if j.terminal() {
			return j
		}
	}
	t.Fatalf("job %s is still %q after %v", id, j.Status, patience)
	return j
}
