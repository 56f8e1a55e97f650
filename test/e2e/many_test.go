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
	"github.com/llmguard/llmguard/internal/redistest"
)

// rss returns the process's resident memory in kB, or 0 if it is not available.
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

// kept returns the number of Redis connections that are occupied by one waiting caller, in a
// subscription or a blocking command.
func (s *stack) kept() int {
	s.t.Helper()
	list, err := s.redis.Client().ClientList(s.t.Context()).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(list) {
		subscribed := !strings.Contains(line, " sub=0 psub=0 ssub=0 ")
		_, rest, _ := strings.Cut(line, " flags=")
		flags, _, _ := strings.Cut(rest, " ")
		if strings.Contains(line, "name=llmguard ") && (subscribed || strings.Contains(flags, "b")) {
			n++
		}
	}
	return n
}

// TestManyWaiting: callers waiting at a proxy, plain and streaming, do not occupy a Redis
// connection each. The long form has a thousand of them and bounds the memory per caller, which
// `go -C bench run . waiting` measures.
func TestManyWaiting(t *testing.T) {
	t.Parallel()
	callers := either(100, 1000)
	s := newStack(t, fakeprovider.Options{}, strings.Replace(simple("[{name: w, subject: user, amount: $100, window: 1h}]"), `api_key: "${provider_key}"`,
		`api_key: "${provider_key}", pools: [{id: one, concurrency: 1}]`, 1)+"queue: {keep_alive: 500ms}\n")
	p := s.proxy()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var streams atomic.Int64
	defer redistest.Wait(t, wg.Wait)
	defer cancel()
	send := func(text, extra string) {
		wg.Go(func() { s.keepWaiting(ctx, p, chat("gpt-4o", text, `"max_tokens":5`+extra), &streams) })
	}
	send("[fake: delay=10m]", "")
	until(t, "the provider is occupied", func() bool { return len(s.fake.Log()) == 1 })
	for range 20 { // warm up: what any traffic opens
		post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5`), "Prefer", "respond-async")
	}
	p.metrics() // rendering metrics takes memory, too
	rss, kept := p.rss(), s.kept()
	for i := range callers {
		send("hi", []string{"", `,"stream":true`}[i%2])
	}
	p.awaitValue("llmguard_proxy_waiting_callers", float64(callers))
	until(t, "every stream has its first newline", func() bool { return int(streams.Load()) == callers/2 })
	more, kilobytes := s.kept()-kept, p.rss()-rss
	t.Logf("%d callers keep %d connections to Redis, and %d kB RSS more than %d kB", callers, more, kilobytes, rss)
	if more > 4 {
		t.Errorf("%d callers keep %d connections to Redis to themselves", callers, more)
	}
	if soak && kilobytes > 80_000 && !raceEnabled { // about 30,000
		t.Errorf("%d kB more", kilobytes)
	}
}

// keepWaiting makes a call that waits until ctx is done, and counts it when its response
// begins. It retries if Redis does not answer under the load.
func (s *stack) keepWaiting(ctx context.Context, p *process, body string, begun *atomic.Int64) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/chat/completions", strings.NewReader(body))
		if err != nil {
			s.t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+s.keys["alice"])
		resp, err := client.Do(req)
		if err != nil {
			return // disconnected at the end of the test
		}
		if resp.StatusCode == http.StatusOK {
			begun.Add(1)
			<-ctx.Done()
		} else if resp.StatusCode != http.StatusServiceUnavailable {
			text, _ := io.ReadAll(resp.Body)
			s.t.Errorf("status %d: %s", resp.StatusCode, text)
			_ = resp.Body.Close()
			return
		}
		_ = resp.Body.Close()
		time.Sleep(100 * time.Millisecond)
	}
}
