package agents

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// queued is how long calls wait in the queue: longer than the programs usually wait for a byte.
func queued() time.Duration {
	if required {
		return 30 * time.Second
	}
	return 3 * time.Second
}

// queue lets all programs wait, because their org makes another call. They get the answer to their first request.
func queue(t *testing.T, s *stand) {
	for _, p := range programs {
		p.need(t)
	}
	var all []*story
	var started []*running
	free := make(chan struct{})
	s.Provider.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		if strings.Contains(q.UserText, "Occupy") {
			redistest.Came(t, free)
		}
		return s.script(q)
	})
	for _, p := range programs {
		st := s.begin(t, p, "queue", say("After a while."))
		all = append(all, st)
		before := s.Provider.Totals().InFlight
		go func() {
			_, _, _ = st.post("/chat/completions",
				`{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"Occupy."}]}`)
		}()
		redistest.Eventually(t, "the org is occupied", func() bool { return s.Provider.Totals().InFlight > before })
		started = append(started, st.start(p, st.key))
	}
	redistest.Eventually(t, "all wait", func() bool {
		return strings.Contains(s.metrics(t), fmt.Sprintf("llmguard_proxy_waiting_callers %d\n", len(programs)))
	})
	time.Sleep(queued())
	close(free)
	for i, st := range all {
		st.want(started[i].end(), "After a while.", 2, 1) // one of them occupied the org
		e := st.charged(2)[1]
		if int64(e.Cost) != bill(st.sent()[0]) || e.WaitedMS < queued().Milliseconds() {
			t.Errorf("%s: got %d nano-USD after %d ms, want %d after %v", st.org, e.Cost, e.WaitedMS, bill(st.sent()[0]),
				queued())
		}
	}
}

func (s *stand) metrics(t *testing.T) string {
	t.Helper()
	client := http.Client{Timeout: redistest.Bound}
	resp, err := client.Get(s.Proxy.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
