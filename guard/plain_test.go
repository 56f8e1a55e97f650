package guard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// answering returns a provider whose every answer is this text, with or without its length.
func answering(t *testing.T, text string, sized bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/json")
		if sized {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		}
		_, _ = io.WriteString(w, text[:len(text)/2])
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, text[len(text)/2:])
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// large returns a chat completion of at least `size` bytes, with usage.
func large(size int) string {
	return `{"id":"x","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],"more":"` +
		strings.Repeat("x", size) + `","usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`
}

// slow is a caller that runs look before it accepts the first byte.
type slow struct {
	*httptest.ResponseRecorder
	look func()
}

func (s *slow) Write(p []byte) (int, error) {
	if s.look != nil {
		s.look()
		s.look = nil
	}
	return s.ResponseRecorder.Write(p)
}

// TestUnreadAnswersTakeNoMemory checks that a large answer that its caller does not read is
// in a file, and that everything it took is returned at the end.
func TestUnreadAnswersTakeNoMemory(t *testing.T) {
	for _, sized := range []bool{true, false} {
		t.Run(fmt.Sprintf("length known %v", sized), func(t *testing.T) {
			r := newRig(t, roomy()...)
			room := spool.New(spool.Options{Memory: 1 << 30})
			r.guard.spool = room
			text := large(3 * spool.Small)
			r.moveTo(answering(t, text, sized))
			w := &slow{httptest.NewRecorder(), func() {
				if n := room.Memory.Used(); n != 0 {
					t.Errorf("an answer that is not taken takes %d bytes of memory", n)
				}
				if n := room.Disk.Used(); n < int64(len(text)) {
					t.Errorf("it takes %d bytes of disk, want its size", n)
				}
			}}
			c := r.begin(r.plan(prompt("gpt-4o", "hi", `"max_tokens":100`)))
			err := c.Forward(t.Context(), w, Forwarding{Header: http.Header{}})
			c.End(t.Context())
			if err != nil || w.Body.String() != text || c.Result.Outcome != Completed || c.Result.Cost != 10*in+5*out {
				t.Errorf("%v, %d bytes, %s at %v; want all of it at its cost", err, w.Body.Len(), c.Result.Outcome, c.Result.Cost)
			}
			if room.Memory.Used() != 0 || room.Disk.Used() != 0 {
				t.Errorf("left: %d bytes of memory, %d of disk", room.Memory.Used(), room.Disk.Used())
			}
		})
	}
}

// withoutRoom are ways in which there is no room for a large answer.
var withoutRoom = map[string]spool.Options{
	"none":               {Memory: 1000, Disk: -1},
	"none to read it":    {Memory: 1000},
	"some for its start": {Memory: 100_000, Disk: -1},
}

// crowded leaves a rig without room for answers, and without patience.
func (r *rig) crowded(o spool.Options) {
	r.guard.spool, r.guard.answerWait = spool.New(o), time.Millisecond
}

// TestAnswerWithoutRoom checks that an answer that cannot be buffered still reaches its
// caller, at its own cost.
func TestAnswerWithoutRoom(t *testing.T) {
	for name, room := range withoutRoom {
		for _, sized := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, length known %v", name, sized), func(t *testing.T) {
				r := newRig(t, roomy()...)
				r.crowded(room)
				text := large(3 * spool.Small)
				r.moveTo(answering(t, text, sized))
				before := r.used()
				c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":100`))
				if err != nil || w.Body.String() != text {
					t.Errorf("%v, %d bytes of %d", err, w.Body.Len(), len(text))
				}
				if c.Result.Outcome != Completed || c.Result.Cost != 10*in+5*out || c.Result.Estimated {
					t.Errorf("%s at %v, want its cost", c.Result.Outcome, c.Result.Cost)
				}
				if got := w.Header().Get(http.TrailerPrefix + HeaderCost); got != string(c.Result.Cost.AppendUSD(nil)) {
					t.Errorf("the trailer has a cost of %q", got)
				}
				r.charged(before, c)
				if used := r.guard.spool.Memory.Used() + r.guard.spool.Disk.Used(); used != 0 {
					t.Errorf("%d bytes are left", used)
				}
			})
		}
	}
}

// TestAnswerWithoutRoomOrUsage checks that an answer that cannot be read and does not
// report usage is charged the hold, and any cost it reports beyond that.
func TestAnswerWithoutRoomOrUsage(t *testing.T) {
	r := newRig(t, roomy()...)
	for usage, most := range map[string]pricing.Nano{
		`"usage":null`: 0, `"usage":{"prompt_tokens":0,"completion_tokens":0}`: 0, `"usage":{"cost":0.5}`: 0, `"usage":{"cost_in_usd_ticks":5000000000}`: 500_000_000,
	} {
		r.crowded(spool.Options{Memory: 1000, Disk: -1})
		text := `{"model":"gpt-4o","choices":[{"message":{"content":"` + strings.Repeat("x", 10_000) + `"}}],` + usage + `}`
		r.moveTo(answering(t, text, true))
		c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":100`))
		if want := max(c.Plan.Max.Cost, most); err != nil || w.Body.String() != text || c.Result.Cost != want || !c.Result.Estimated {
			t.Errorf("%s: %v, %s at %v, want %v", usage, err, c.Result.Outcome, c.Result.Cost, want)
		}
	}
}

// TestAnswerWithoutRoomIsRedacted checks that an answer that reports a failure does not
// name the account, whether or not there was room to read it.
func TestAnswerWithoutRoomIsRedacted(t *testing.T) {
	r := newRig(t, roomy()...)
	for name, room := range withoutRoom {
		for _, size := range []int{0, 3 * spool.Small} {
			r.crowded(room)
			text := `{"choices":[{"message":{"content":"` + strings.Repeat("x", size) + `"},"finish_reason":"error","error":{"message":"bad key sk-own"}}]}`
			r.moveTo(answering(t, text, true))
			_, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":100`))
			want := strings.Replace(text, "sk-own", providers.Redacted, 1)
			if size == 0 { // it was judged
				if err == nil || err.Error() != "502 bad key "+providers.Redacted || w.Body.Len() > 0 {
					t.Errorf("%s: %v, %s", name, err, w.Body)
				}
				continue
			}
			if err != nil || w.Body.String() != want {
				t.Errorf("%s, %d bytes: %v, ends in %s", name, size, err, w.Body.String()[max(w.Body.Len()-100, 0):])
			}
		}
	}
}

// TestResponseWithoutRoomHasAnOwner checks that a response that could not be buffered, and
// its items, belong to its caller before the caller can know its id.
func TestResponseWithoutRoomHasAnOwner(t *testing.T) {
	for name, room := range withoutRoom {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, roomy()...)
			r.crowded(room)
			owned := ownership.New(r.redis.DB(), nil, nil)
			r.guard.ownership, r.guard.Plans.resolver.ownership = owned, owned
			text := `{"id":"resp_large","object":"response","status":"completed","model":"gpt-4o","output":[{"type":"message","id":"msg_1","content":` +
				`[{"type":"output_text","text":"` + strings.Repeat("x", 3*spool.Small) + `"}]}],"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15}}`
			r.moveTo(answering(t, text, true))
			req, err := wire.Scan(wire.Responses, []byte(`{"model":"gpt-4o","input":"hi","max_output_tokens":100}`), wire.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			plan, err := r.guard.Plans.Prepare(r.caller(), req)
			if err != nil {
				t.Fatal(err)
			}
			c := r.begin(plan)
			w := &slow{httptest.NewRecorder(), func() {
				if _, err := r.guard.Objects.Find(t.Context(), r.caller(), wire.ObjectResponse, "resp_large"); err != nil {
					t.Errorf("its caller reads a response that is nobody's: %v", err)
				}
			}}
			err = c.Forward(t.Context(), w, Forwarding{Header: http.Header{}})
			c.End(t.Context())
			if err != nil || w.Body.String() != text || c.Result.Cost != 10*in+5*out {
				t.Errorf("%v, %d bytes, %v", err, w.Body.Len(), c.Result.Cost)
			}
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // notes are asynchronous
				found, err := r.guard.Objects.resolver.notes(t.Context(), r.caller(), []string{"resp_large", "msg_1"})
				if err == nil && found["resp_large"].Total == 15 && found["msg_1"].Response == "resp_large" {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%+v, %v", found, err)
				}
			}
		})
	}
}

// sizable returns a plan with a large body, and a weak pointer to that body.
func (r *rig) sizable(extra string) (*Plan, weak.Pointer[byte]) {
	r.t.Helper()
	body := []byte(prompt("gpt-4o", strings.Repeat("hi ", 100_000), `"max_tokens":100`+extra))
	req, err := wire.Scan(wire.ChatCompletions, body, wire.Limits{})
	if err != nil {
		r.t.Fatal(err)
	}
	plan, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	return plan, weak.Make(&req.Body[0])
}

// TestSentBodiesAreDropped checks that nothing keeps the request's bytes once the provider
// answers, because an answer may take hours.
func TestSentBodiesAreDropped(t *testing.T) {
	for _, extra := range []string{"", `,"stream":true`, `,"stream":true,"stream_options":{"include_usage":true}`} {
		t.Run(extra, func(t *testing.T) {
			r := newRig(t, roomy()...)
			plan, bytes := r.sizable(extra)
			told := false
			w := &slow{httptest.NewRecorder(), func() {
				if !told {
					t.Error("nobody was told that the body is needed no more")
				}
				for end := time.Now().Add(time.Minute); bytes.Value() != nil; time.Sleep(time.Millisecond) {
					runtime.GC()
					if time.Now().After(end) {
						t.Fatal("the body of the request is kept while its answer is relayed")
					}
				}
			}}
			c := r.begin(plan)
			err := c.Forward(t.Context(), w, Forwarding{Header: http.Header{}, Sent: func() { told = true }})
			c.End(t.Context())
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAnswersWaitForRoom checks that an answer that cannot be buffered waits for room
// before it is charged by its hold.
func TestAnswersWaitForRoom(t *testing.T) {
	r := newRig(t, roomy()...)
	room := spool.New(spool.Options{Memory: 16 * spool.Small})
	r.guard.spool = room
	if !room.Memory.Try("other", 14*spool.Small) {
		t.Fatal("no room to take away")
	}
	text := large(3 * spool.Small)
	r.moveTo(answering(t, text, true))
	go func() {
		for end := time.Now().Add(time.Minute); room.Memory.Waiting() == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		room.Memory.Give("other", 14*spool.Small)
	}()
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":100`))
	if err != nil || w.Body.String() != text || c.Result.Outcome != Completed {
		t.Errorf("%v, %d bytes, %s; want all of it at its cost", err, w.Body.Len(), c.Result.Outcome)
	}
}
