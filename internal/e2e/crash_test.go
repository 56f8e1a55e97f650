package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

type job struct {
	ID      string  `json:"id"`
	Status  string  `json:"status"`
	Charged *string `json:"charged_cost_usd"`
	Error   *struct {
		Code string `json:"code"`
	} `json:"error"`
	Attempts int `json:"attempts"`
}

func (j job) terminal() bool {
	return j.Status != "queued" && j.Status != "running"
}

// submit queues a call and returns its job; it tries again while the proxy or
// Redis is away, as a batch client would.
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

// TestCrash: jobs survive SIGKILL of workers, proxies and Redis: each ends
// once and every result is readable.
func TestCrash(t *testing.T) {
	jobs, kills := 120, 9
	if n, err := strconv.Atoi(os.Getenv("LLMGUARD_CRASH_JOBS")); err == nil {
		jobs, kills = n, max(n/14, 9)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d jobs, %d kills, seed %d", jobs, kills, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newStack(t, fakeprovider.Options{}, simple("[{name: w, subject: org, amount: $100, window: 1h}]")+"queue: {max_attempts: 20}\n") // a slow machine loses more of them
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Delay: 150 * time.Millisecond}
	})
	var mu sync.Mutex
	proxies := []*process{s.proxy(), s.proxy()}
	workers := []*process{s.worker(), s.worker()}
	url := func() string {
		mu.Lock()
		defer mu.Unlock()
		return proxies[time.Now().UnixNano()%2].URL
	}
	stop := make(chan struct{})
	var nemesis sync.WaitGroup
	nemesis.Go(func() {
		for range kills {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(300+rng.IntN(900)) * time.Millisecond):
			}
			i := rng.IntN(2)
			switch rng.IntN(3) {
			case 0:
				s.redis.Restart() // kills first
			case 1:
				workers[i].kill()
				workers[i] = s.worker()
			default:
				proxies[i].kill()
				next := s.proxy()
				mu.Lock()
				proxies[i] = next
				mu.Unlock()
			}
		}
	})
	ids := make([]string, jobs)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < jobs; i += 4 {
				ids[i] = submit(t, url, s.keys["alice"], chat("gpt-4o-mini", fmt.Sprint("job ", i), `"max_tokens":20`)).ID
			}
		})
	}
	wg.Wait()
	nemesis.Wait()
	close(stop)
	for _, id := range ids {
		j := awaitJob(t, url(), s.keys["alice"], id, 3*time.Minute)
		if j.Status == "succeeded" {
			r := fetch(url()+"/jobs/"+id+"/result", s.keys["alice"])
			if r.status != http.StatusOK || !json.Valid([]byte(r.body)) {
				t.Errorf("result of %s: status %d, %v: %.200s", id, r.status, r.err, r.body)
			}
			continue
		}
		t.Errorf("job %s ended as %s (%v) after %d attempts", id, j.Status, j.Error, j.Attempts)
	}
	// A second look: a terminal state never changes.
	for _, id := range ids[:10] {
		if j := awaitJob(t, url(), s.keys["alice"], id, time.Minute); j.Status != "succeeded" {
			t.Errorf("job %s changed its terminal state to %s", id, j.Status)
		}
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
