package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/llmguard/llmguard/queue"
)

// TestReads: the reads of one key are bounded in rate and concurrency; other keys have their own
// bounds.
func TestReads(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	r := newReads(storeReads)
	var ends []func()
	for range storeReads.atOnce / readsAll {
		end, err := r.begin("acme", "k1", readsAll, now)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if _, err := r.begin("acme", "k1", readsOne, now); err == nil {
		t.Error("more at once than there may be")
	}
	if _, err := r.begin("acme", "k2", readsAll, now); err != nil {
		t.Error(err)
	}
	for _, end := range ends {
		end()
	}
	n := 2
	for ; n < 1000; n++ {
		end, err := r.begin("acme", "k1", readsAll, now)
		if err != nil {
			break
		}
		end()
	}
	if n != storeReads.burst/readsAll {
		t.Errorf("%d in a burst, want %d", n, storeReads.burst/readsAll)
	}
	if _, err := r.begin("acme", "k1", readsAll, now.Add(time.Second)); err != nil {
		t.Errorf("a second later: %v", err)
	}
}

// TestReadsOfAnOrg: more keys do not give an org unlimited reads, and a refused read takes nothing.
func TestReadsOfAnOrg(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	r := newReads(storeReads)
	begin := func(org string, n int) (begun int, ends []func()) {
		for i := range n {
			end, err := r.begin(org, fmt.Sprint("k", i), readsAll, now)
			if err != nil {
				continue
			}
			begun, ends = begun+1, append(ends, end)
		}
		return begun, ends
	}
	open, ends := begin("acme", 1000)
	if want := orgReads * storeReads.atOnce / readsAll; open != want {
		t.Errorf("%d in parallel, want %d", open, want)
	}
	for _, end := range ends {
		end()
		end() // a second time does nothing
	}
	total := open
	for range 100 {
		n, ends := begin("acme", 10)
		for _, end := range ends {
			end()
		}
		total += n
	}
	if want := orgReads * storeReads.burst / readsAll; total != want {
		t.Errorf("%d in a burst, want %d", total, want)
	}
	if n, _ := begin("other", 1); n != 1 {
		t.Error("another org's reads are used up, too")
	}
	if left := r.of("acme", "k999", now)[0].rate.TokensAt(now); left != float64(storeReads.burst) {
		t.Errorf("a key that was refused has %v units left, want %d", left, storeReads.burst)
	}
}

// TestReadsOfAKey: a key that reads its limits in a loop is asked to retry later, in OpenAI's
// format, and may still make calls.
func TestReadsOfAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	now := time.Now()
	rate := r.proxy.reads.of("acme", "k1", now)[0].rate
	rate.AllowN(now, int(rate.TokensAt(now)))
	rate.SetLimit(0.01) // nearly no refill, however slow the machine is
	for range 10 {
		a := r.call(http.MethodGet, "/v1/limits", "")
		if a.status == 200 {
			continue
		}
		a.fails(t, 429, "rate_limit_exceeded")
		if s, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || s < 1 {
			t.Errorf("got headers %v, want Retry-After", a.header)
		}
		if a := r.chat(prompt("hi", `"max_tokens":5`)); a.status != 200 {
			t.Errorf("got status %d, %s; want 200", a.status, a.body)
		}
		return
	}
	t.Error("a key reads as often as it likes")
}
