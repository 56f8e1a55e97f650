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

	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/wire"
)

// answering is a provider whose every answer is this text, with its length or without.
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

// large is a chat completion of so many bytes and some, with usage.
func large(size int) string {
	return `{"id":"x","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"` +
		strings.Repeat("x", size) + `"}}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`
}

// slow is a caller who looks before it takes the first byte.
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

// TestUnreadAnswersTakeNoMemory: a large answer that its caller does not take is in a
// file, and what it took is given back at the end.
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

// TestAnswerWithoutRoom: an answer for which there is no room reaches its caller all the
// same, and its hold is charged, because nobody could read what it cost.
func TestAnswerWithoutRoom(t *testing.T) {
	for name, room := range map[string]spool.Options{
		"none":               {Memory: 1000, Disk: -1},
		"none to read it":    {Memory: 1000},
		"some for its start": {Memory: 100_000, Disk: -1},
	} {
		for _, sized := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, length known %v", name, sized), func(t *testing.T) {
				r := newRig(t, roomy()...)
				r.guard.spool, r.guard.answerWait = spool.New(room), time.Millisecond
				text := large(3 * spool.Small)
				r.moveTo(answering(t, text, sized))
				before := r.used()
				c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":100`))
				if err != nil || w.Body.String() != text {
					t.Errorf("%v, %d bytes of %d", err, w.Body.Len(), len(text))
				}
				if c.Result.Outcome != NoUsage || c.Result.Cost != c.Max.Cost || !c.Result.Estimated {
					t.Errorf("%s at %v, want the hold of %v", c.Result.Outcome, c.Result.Cost, c.Max.Cost)
				}
				r.charged(before, c)
				if used := r.guard.spool.Memory.Used() + r.guard.spool.Disk.Used(); used != 0 {
					t.Errorf("%d bytes are left", used)
				}
			})
		}
	}
}

// sizable is a plan whose body is large, and a pointer to that which does not keep it.
func (r *rig) sizable(extra string) (*Plan, weak.Pointer[byte]) {
	r.t.Helper()
	body := []byte(prompt("gpt-4o", strings.Repeat("hi ", 100_000), `"max_tokens":100`+extra))
	req, err := wire.Scan(wire.ChatCompletions, body, wire.Limits{})
	if err != nil {
		r.t.Fatal(err)
	}
	plan, err := r.guard.Prepare(r.caller(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	return plan, weak.Make(&req.Body[0])
}

// TestSentBodiesAreDropped: once the provider answers, nothing keeps the request's bytes:
// an answer may take hours.
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

// TestAnswersWaitForRoom: an answer that finds no room waits for it before it is charged
// by its hold.
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
