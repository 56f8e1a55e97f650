package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// rss is a process's resident memory in kB, 0 where that cannot be told.
func (p *process) rss() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kb, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.Atoi(kb)
	return n
}

// connections counts the proxy's connections to Redis.
func (s *stack) connections() int {
	s.t.Helper()
	list, err := s.redis.Client().ClientList(context.Background()).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(list, "name=llmguard ")
}

// TestManyWaiting: a thousand callers who wait at one proxy, plain and streams,
// share a few connections to Redis, and little is kept of each.
func TestManyWaiting(t *testing.T) {
	const callers = 1000
	s := newStack(t, fakeprovider.Options{}, strings.Replace(simple("[{name: w, subject: user, amount: $100, window: 1h}]"), `api_key: "${provider_key}"`,
		`api_key: "${provider_key}", pools: [{id: one, concurrency: 1}]`, 1)+"queue: {keep_alive: 1s}\nstore: {deadline: 10s}\n") // all at once, on a machine that does other things
	p := s.proxy()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var refused atomic.Value // one of the refusals
	defer wg.Wait()
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	call := func(body string) (again bool) {
		req, err := http.NewRequestWithContext(ctx, "POST", p.URL+"/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return false
		}
		req.Header.Set("Authorization", "Bearer "+s.keys["alice"])
		resp, err := client.Do(req)
		if err != nil {
			return false // hung up at the end
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			text, _ := io.ReadAll(resp.Body)
			refused.Store(fmt.Sprintf("status %d: %s", resp.StatusCode, text))
			return resp.StatusCode == http.StatusServiceUnavailable // so many at once, on a machine that does other things
		}
		<-ctx.Done()
		return false
	}
	send := func(body string) {
		wg.Go(func() {
			for call(body) {
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	send(chat("gpt-4o", "[fake: delay=10m]", `"max_tokens":5`))
	for len(s.fake.Log()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	for range 20 { // what any traffic at all opens
		post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5`), "Prefer", "respond-async")
	}
	p.metrics() // a look takes memory and connections, too
	rss, connections := p.rss(), s.connections()
	for i := range callers {
		send(chat("gpt-4o", "hi", `"max_tokens":5`+[]string{"", `,"stream":true`}[i%2]))
	}
	waiting := fmt.Sprintf("llmguard_proxy_waiting_callers %d\n", callers)
	for range 600 {
		if strings.Contains(p.metrics(), waiting) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if !strings.Contains(p.metrics(), waiting) {
		t.Fatalf("they do not all wait: %v", refused.Load())
	}
	time.Sleep(3 * time.Second) // some polls, newlines and renewals
	more, kilobytes := s.connections()-connections, p.rss()-rss
	t.Logf("%d callers: %d connections to Redis and %d kB RSS more than %d and %d kB", callers, more, kilobytes, connections, rss)
	if more > 4 { // than before they came; one each would fill the pool of 64
		t.Errorf("%d connections to Redis more", more)
	}
	if kilobytes > 80_000 && !raceEnabled { // go -C bench run . waiting measures it; about 30,000
		t.Errorf("%d kB more", kilobytes)
	}
}
