package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// id returns the id in the answer, "" if there is none.
func (a answer) id() string {
	var v struct{ ID string }
	_ = json.Unmarshal([]byte(a.body), &v)
	return v.ID
}

// TestKeyBackground: one key creates one background response, and leads to it whatever its outcome.
func TestKeyBackground(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	body := `{"model":"gpt-4o","input":"[fake: output=5] hi","max_output_tokens":20,"background":true}`
	create := func(body, key string) answer { return r.call("POST", "/v1/responses", body, keyHeader, key) }
	first, again, other := create(body, "k"), create(body, "k"), create(body, "k2")
	if first.status != 200 || first.id() == "" || first.header.Get(headerReplayed) != "" || other.id() == first.id() {
		t.Fatalf("got %+v, then %+v; want two responses", first, other)
	}
	if again.status != 200 || again.id() != first.id() || again.header.Get(headerReplayed) != "true" || again.header.Get(headerJob) != first.header.Get(headerJob) {
		t.Errorf("got %+v, then %+v; want the first again, replayed", first, again)
	}
	create(strings.Replace(body, "hi", "ho", 1), "k").fails(t, 422, "idempotency_key_reused")
	if a := r.call("POST", "/v1/responses/"+other.id()+"/cancel", ""); a.status != 200 {
		t.Fatalf("got %+v; want status 200", a)
	}
	if a := create(body, "k2"); a.id() != other.id() || !strings.Contains(a.body, `"status":"cancelled"`) {
		t.Errorf("got %+v, want 200", a)
	}
	r.worker(nil)
	r.until("the response has ended", func() bool {
		again = create(body, "k")
		return !strings.Contains(again.body, `"status":"queued"`) && !strings.Contains(again.body, `"status":"in_progress"`)
	})
	if again.id() != first.id() || !strings.Contains(again.body, `"status":"completed"`) {
		t.Errorf("got %+v, want the first, completed", again)
	}
	if n := r.fake.Totals().Requests; n != 1 {
		t.Errorf("got %d requests reached the provider, want 1", n)
	}
	streamed := strings.Replace(body, `"background"`, `"stream":true,"background"`, 1)
	one, two := create(streamed, "k3"), create(streamed, "k3")
	if one.header.Get(headerJob) != two.header.Get(headerJob) || !strings.Contains(one.body, "response.completed") || !strings.Contains(two.body, "response.completed") || two.header.Get(headerReplayed) != "true" {
		t.Errorf("got %+v, then %+v; want the whole stream twice, the second replayed", one, two)
	}
}

// TestStreamOfAForgottenRequest: the events of a background response echo its request also after that was deleted.
func TestStreamOfAForgottenRequest(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	r.worker(nil)
	create := func(input string) (answer, string) {
		t.Helper()
		a := r.call("POST", "/v1/responses", `{"model":"gpt-4o","max_output_tokens":20,"background":true,"stream":true,`+
			`"instructions":"Be brief","metadata":{"a":"b"},"service_tier":"default","temperature":0.5,"input":"`+input+`"}`)
		return a, "/v1/responses/" + queue.ResponseID(a.header.Get(headerJob)) + "?stream=true"
	}
	answered, path := create("[fake: output=5] hi")
	_, failed := create("[fake: status=400] hi")
	for _, request := range r.rdb.Keys(t.Context(), "lg:*:in").Val() { // a worker deletes those of answered calls
		r.rdb.Del(t.Context(), request)
	}

	late := r.call("GET", path, "")
	if late.body != answered.body || strings.Count(late.body, `"instructions":"Be brief"`) < 3 {
		t.Errorf("got\n%s\nwant\n%s", late.body, answered.body)
	}
	rest := r.call("GET", path+"&starting_after=0", "").body
	if !strings.HasPrefix(rest, "event: response.queued\n") || !strings.HasSuffix(late.body, rest) {
		t.Errorf("got %s after the first event", rest)
	}
	late = r.call("GET", failed, "") // only its record is left
	if strings.Count(late.body, `"model":"gpt-4o"`) != 2 || strings.Count(late.body, "event: error") != 1 {
		t.Errorf("got %s, want two events with the model, and an error", late.body)
	}
}

// TestLateErrorIsNumbered: a stream of Responses that fails in the queue after part of it was sent,
// in the middle of an event, ends with the next event.
func TestLateErrorIsNumbered(t *testing.T) {
	r := newRig(t, single, nil)
	release := r.occupy()
	r.worker(func(ctx context.Context, c *queue.Claim) queue.Verdict {
		if err := c.Start(ctx); err != nil {
			return queue.Verdict{Kind: queue.Requeue}
		}
		out := c.Output()
		out.WriteHeader(http.StatusOK)
		for i, kind := range []string{"response.created", "response.in_progress"} {
			_, _ = out.Write([]byte("event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"sequence_number\":" + string(rune('5'+i)) + "}\n\n"))
		}
		_, _ = out.Write([]byte("event: response.output_text.delta\ndata: {\"type\":\"response.out"))
		return queue.Verdict{Kind: queue.Fail, Error: wire.BadGateway("It broke", nil)}
	})
	answered := make(chan answer, 1)
	go func() {
		answered <- r.do(t.Context(), "POST", "/v1/responses", `{"model":"gpt-4o","input":"hi","max_output_tokens":20,"stream":true}`)
	}()
	r.until("the call waits", func() bool { return r.jobs() > 0 })
	release()
	a := redistest.Came(t, answered)
	want := "event: error\ndata: {\"type\":\"error\",\"sequence_number\":7,"
	if _, rest, ok := strings.Cut(a.body, "\"sequence_number\":6}\n\n"); !ok || !strings.HasPrefix(rest, want) {
		t.Errorf("%d %q, want it to end in %q", a.status, a.body, want)
	}
}
