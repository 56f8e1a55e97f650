package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// TestUnfinishedBodies: large bodies that are announced but not sent take no memory. The org that
// announces them is refused beyond its share before they are read, and others have space.
func TestUnfinishedBodies(t *testing.T) {
	room := spool.New(spool.Options{Memory: 8 << 20, Disk: 24 << 20})
	honest := keys.New(keys.Live)
	r := newRig(t, queue.Pool{}, func(o *Options) {
		o.Spool = room
		o.Directory.ByHash[keys.Hash(keys.Pepper{}, honest)] = auth.Principal{Org: &guard.Org{Org: settings.Org{ID: "other"}}, User: "bob", Key: "k2"}
	}, window(roomy, time.Hour))
	r.proxy.bodies.roomWait = time.Millisecond
	const size = 4 << 20
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{", r.key, size)
	for n := int64(1); n <= 3; n++ {
		c, err := net.Dial("tcp", r.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, head)
		r.until("an announced body takes its room", func() bool { return room.Disk.Used() == n*size })
	}
	if n := room.Memory.Used(); n != 0 {
		t.Errorf("%d bytes of memory are taken by bodies that have not come, want none", n)
	}
	text := prompt("hi", `"max_tokens":5,"user":"`+strings.Repeat("x", size)+`"`)
	a := r.chat(text[:len(text)-1] + "}")
	a.fails(t, http.StatusServiceUnavailable, "server_is_overloaded")
	if !strings.Contains(a.body, "memory.spool") || a.header.Get("Retry-After") == "" {
		t.Errorf("got %s, want the name of the setting and Retry-After", a.body)
	}
	if a := r.chat(prompt("hi", `"max_tokens":5`)); a.status != http.StatusOK {
		t.Errorf("a small call of the same org: status %d, %s", a.status, a.body)
	}
	if a := r.chat(text, "Authorization", "Bearer "+honest); a.status != http.StatusOK {
		t.Errorf("another org's large call: status %d, %s; want 200", a.status, a.body)
	}
}

// TestSentBodiesTakeNoRoom: a body takes memory until it has been sent, not while its answer, or
// the wait for it, lasts.
func TestSentBodiesTakeNoRoom(t *testing.T) {
	room := spool.New(spool.Options{})
	r := newRig(t, single, func(o *Options) { o.Spool = room }, window(roomy, time.Hour))
	large := strings.Repeat("x", 2<<20)
	streamed := r.open(t.Context(), prompt("[fake: output=5 gap=10m]", `"max_tokens":50,"stream":true,"user":"`+large+`"`))
	if n := room.Memory.Used() + room.Disk.Used(); streamed.resp.StatusCode != http.StatusOK || n != 0 {
		t.Errorf("status %d, %d bytes are taken while the answer comes, want none", streamed.resp.StatusCode, n)
	}
	go r.chat(prompt("waits", `"max_tokens":5,"user":"`+large+`"`)) // it ends with the test's server
	r.until("the call waits", func() bool { return r.jobs() == 1 })
	r.until("a body that is in the queue takes no room", func() bool { return room.Memory.Used()+room.Disk.Used() == 0 })
}

// TestLargeAnswersFromTheQueue: a large answer reaches a caller that waited for it unchanged, and
// nothing of it remains here.
func TestLargeAnswersFromTheQueue(t *testing.T) {
	room := spool.New(spool.Options{})
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Spool = room }, window(roomy, time.Hour))
	r.worker(nil)
	input := `{"model":"text-embedding-3-small","input":["a"` + strings.Repeat(`,"a"`, 199) + `]}`
	live := r.call(http.MethodPost, "/v1/embeddings", input)
	waited := r.call(http.MethodPost, "/v1/embeddings", input, "Prefer", "respond-async, wait=60")
	if live.status != http.StatusOK || waited.status != http.StatusOK || len(live.body) <= spool.Small {
		t.Fatalf("status %d, then %d; %d bytes, want more than %d", live.status, waited.status, len(live.body), spool.Small)
	}
	if waited.body != live.body {
		t.Errorf("%d bytes came from the queue, %d live; want the same", len(waited.body), len(live.body))
	}
	again := r.call(http.MethodGet, "/v1/jobs/"+waited.header.Get(headerJob)+"/result", "")
	if again.status != http.StatusOK || again.body != live.body {
		t.Errorf("status %d, %d bytes were kept, want the same", again.status, len(again.body))
	}
	r.until("nothing is left", func() bool { return room.Memory.Used()+room.Disk.Used() == 0 })
}

// TestRecordingsTakeRoom: an answer that is stored for an Idempotency-Key counts while it is
// recorded; without space it is not stored, but the call is served.
func TestRecordingsTakeRoom(t *testing.T) {
	room := spool.New(spool.Options{Memory: 20_000, Disk: -1})
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Spool = room }, window(roomy, time.Hour))
	body := prompt("[fake: output=9]", `"max_tokens":50`)
	if a := r.chat(body, "Idempotency-Key", "k"); a.status != http.StatusOK {
		t.Fatalf("status %d, %s; want 200", a.status, a.body)
	}
	r.chat(body, "Idempotency-Key", "k").fails(t, http.StatusGone, "answer_not_kept")
	r.until("nothing is left", func() bool { return room.Memory.Used() == 0 })
}

// TestAnswerWithoutRoomIsFoundAgain: a caller for whose answer there is no space gets it when it
// retries with its key, and pays once.
func TestAnswerWithoutRoomIsFoundAgain(t *testing.T) {
	const memory = 32 << 20 // an org gets half, and the answer has 4.8 MB
	room := spool.New(spool.Options{Memory: memory, Disk: -1})
	r := newRig(t, single, func(o *Options) { o.Spool = room }, window(roomy, time.Hour))
	r.proxy.bodies.roomWait = 10 * time.Millisecond
	release := r.occupy()
	r.worker(nil)
	input := `{"model":"text-embedding-3-small","input":["a"` + strings.Repeat(`,"a"`, 199) + `]}`
	embed := func() answer { return r.call(http.MethodPost, "/v1/embeddings", input, "Idempotency-Key", "once") }
	got := make(chan answer, 1)
	go func() { got <- embed() }()
	r.until("the call waits", func() bool { return r.jobs() == 1 })
	taken := int64(memory)
	for ; !room.Memory.Try("other", taken); taken -= 4 << 10 {
		if taken <= 0 {
			t.Fatal("there is no memory to take")
		}
	}
	release()
	if a := redistest.Came(t, got); a.status != http.StatusServiceUnavailable && a.status != http.StatusTooManyRequests {
		t.Errorf("without room: status %d, %.200s", a.status, a.body)
	}
	room.Memory.Give("other", taken)
	r.proxy.bodies.roomWait = time.Minute // what the first call took may be returned a moment later
	if a := embed(); a.status != http.StatusOK || len(a.body) <= spool.Small {
		t.Errorf("again: status %d, %.200s", a.status, a.body)
	}
	if n := len(r.fake.Log()); n != 1 {
		t.Errorf("the provider got %d requests, want 1", n)
	}
}

// TestOwnResponsesTakeRoom: the request in an unfinished background response takes memory while it
// is read.
func TestOwnResponsesTakeRoom(t *testing.T) {
	room := spool.New(spool.Options{Memory: 8 << 20, Disk: -1})
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Spool = room }, window(roomy, time.Hour))
	r.proxy.bodies.roomWait = 10 * time.Millisecond
	made := r.call(http.MethodPost, "/v1/responses", `{"model":"gpt-4o","input":"hi","background":true,"max_output_tokens":5}`)
	if made.status != http.StatusOK {
		t.Fatalf("status %d, %s", made.status, made.body)
	}
	path := "/v1/responses/" + made.id()
	taken := int64(8 << 20)
	for ; !room.Memory.Try("other", taken); taken -= 64 {
		if taken <= 0 {
			t.Fatal("there is no memory to take")
		}
	}
	if a := r.call(http.MethodGet, path, ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("without room: status %d, %.200s", a.status, a.body)
	}
	room.Memory.Give("other", taken)
	if a := r.call(http.MethodGet, path, ""); a.status != http.StatusOK {
		t.Errorf("with room: status %d, %.200s", a.status, a.body)
	}
	r.until("nothing is left", func() bool { return room.Memory.Used() == 0 })
}

// TestKeysKeepToTheShareOfTheirOrg: the record of a key is admitted before its call is made, and
// counts while it is stored, with an answer and without.
func TestKeysKeepToTheShareOfTheirOrg(t *testing.T) {
	room := spool.New(spool.Options{Memory: 20_000, Disk: -1}) // too little to record an answer
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Spool = room }, window(roomy, time.Hour))
	ctx := t.Context()
	if err := r.rdb.ConfigSet(ctx, "maxmemory", "64mb").Err(); err != nil {
		t.Fatal(err)
	}
	memory := capacity.New(redistest.DB(r.rdb), nil, capacity.Options{}, nil)
	counted := func() int64 {
		n, _ := r.rdb.HGet(ctx, memory.Keys()[2], "o acme").Int64()
		return n
	}
	body := prompt("[fake: output=9]", `"max_tokens":50`)
	if a := r.chat(body, keyHeader, "k"); a.status != http.StatusOK {
		t.Fatalf("status %d, %s; want 200", a.status, a.body)
	}
	r.until("the key's record is kept", func() bool { return r.chat(body, keyHeader, "k").status == http.StatusGone })
	r.until("it is counted", func() bool { return counted() > 0 })
	one := counted()
	r.chat(`{"model":"gpt-4o"}`, keyHeader, "wrong").fails(t, http.StatusBadRequest, "missing_required_parameter")
	r.until("the record of a failure is not", func() bool { return counted() == one })

	full := capacity.Bytes{Written: 64 << 20}
	if err := memory.Count.Reserve(ctx, capacity.Reservation{Org: "acme", ID: "full", Bytes: full, Life: time.Hour}, capacity.Bound{}); err != nil {
		t.Fatal(err)
	}
	before := r.fake.Totals().Requests
	r.chat(body, keyHeader, "other").fails(t, http.StatusTooManyRequests, "rate_limit_exceeded")
	if n := r.fake.Totals().Requests; n != before {
		t.Errorf("%d calls were made for a key that is refused", n-before)
	}
	if a := r.chat(body); a.status != http.StatusOK {
		t.Errorf("a call without a key: status %d, want 200", a.status)
	}
}

// TestLargeEventsTakeRoom: an incomplete event of a stream from the queue counts, for a caller that
// waited and for the reader of a background response. Without space the stream ends in an error,
// and nothing stays reserved.
func TestLargeEventsTakeRoom(t *testing.T) {
	const size = 256 << 10
	for _, background := range []bool{false, true} {
		for _, fits := range []bool{false, true} {
			t.Run(fmt.Sprintf("background %v, fits %v", background, fits), func(t *testing.T) {
				room := spool.New(spool.Options{Memory: 8 << 20, Disk: -1})
				r := newRig(t, single, func(o *Options) { o.Spool = room }, window(roomy, time.Hour))
				r.proxy.bodies.roomWait = 10 * time.Millisecond
				begun, goOn := make(chan struct{}), make(chan struct{})
				r.worker(func(ctx context.Context, c *queue.Claim) queue.Verdict {
					if err := c.Start(ctx); err != nil {
						return queue.Verdict{Kind: queue.Requeue}
					}
					out := c.Output()
					out.WriteHeader(http.StatusOK)
					_, _ = io.WriteString(out, "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\n\n")
					close(begun)
					redistest.Came(t, goOn)
					for range size / 1024 {
						_, _ = out.Write([]byte(strings.Repeat(" ", 1024)))
					}
					<-ctx.Done()
					return queue.Verdict{Kind: queue.Requeue}
				})
				extra := ""
				if background {
					extra = `,"background":true`
				}
				got := make(chan answer, 1)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				go func() {
					got <- r.do(ctx, http.MethodPost, "/v1/responses", `{"model":"gpt-4o","input":"hi","max_output_tokens":5,"stream":true`+extra+`}`, "Prefer", "respond-async, wait=60")
				}()
				redistest.Came(t, begun)
				taken := int64(0)
				if !fits {
					for taken = 8 << 20; !room.Memory.Try("other", taken); taken -= 4 << 10 {
					}
				}
				close(goOn)
				if fits {
					r.until("the event takes room", func() bool { return room.Memory.Used() >= size-spool.SmallEvent })
					leave()
					redistest.Came(t, got)
				} else if a := redistest.Came(t, got); !strings.Contains(a.body, "event: error") || !strings.Contains(a.body, "memory.bodies") {
					t.Errorf("status %d, %.1000q", a.status, a.body)
				}
				r.until("nothing is left", func() bool { return room.Memory.Used() == taken })
			})
		}
	}
}
