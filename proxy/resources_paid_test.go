package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// spent waits until an org has been charged an amount in nano-USD and nothing is held.
func (r *rig) spent(want int64) {
	r.t.Helper()
	var used int64
	for range 2000 {
		list, err := r.guard.Status(r.t.Context(), r.caller())
		if err != nil {
			r.t.Fatal(err)
		}
		if used = list[0].Used; used == want && list[0].Held == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Errorf("got %d nano-USD charged, want %d", used, want)
}

// TestSessionsAndSearchesArePaid: containers and searches cost what the catalogue says, and none
// starts beyond a limit.
func TestSessionsAndSearchesArePaid(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t, window(200_000_000, time.Hour)) // $0.20
	small := r.make("/containers", `{"name":"c"}`)
	r.spent(30_000_000)
	r.make("/containers", `{"name":"c","memory_limit":"4g"}`)
	r.spent(150_000_000)
	store := r.make("/vector_stores", `{}`)
	if a := r.as(n.alice, postIt, "/vector_stores/"+store+"/search", `{"query":"file-0123456789abcdef"}`); a.status != 200 || a.header.Get("X-Llmguard-Cost-Usd") != "0.002500000" {
		t.Errorf("got status %d, %s, cost %q; want 0.0025", a.status, a.body, a.header.Get("X-Llmguard-Cost-Usd"))
	}
	r.spent(152_500_000)
	for range 3 { // within its session
		if a := r.as(n.alice, getIt, "/containers/"+small, ""); a.status != 200 {
			t.Errorf("got status %d, %s; want the container", a.status, a.body)
		}
	}
	r.as(n.alice, postIt, "/vector_stores/"+store+"/search", `{"query":1`).fails(t, http.StatusBadRequest, "")
	r.spent(152_500_000)
	sent := r.fake.Totals().Requests
	r.as(n.alice, postIt, "/containers", `{"name":"c","memory_limit":"16g"}`).fails(t, http.StatusPaymentRequired, "insufficient_quota")
	r.as(n.alice, postIt, "/containers", `{"name":"c","memory_limit":"1t"}`).fails(t, http.StatusBadRequest, "invalid_value")
	if got := r.fake.Totals().Requests; got != sent {
		t.Errorf("%d of the refused requests reached the provider", got-sent)
	}
	// A paid session has expired: the next use is another one.
	note, err := r.guard.Objects.Find(t.Context(), r.caller(), wire.ObjectContainer, small)
	if err != nil {
		t.Fatal(err)
	}
	note.Paid = time.Now().Unix() - 1
	if err := r.guard.Objects.Change(t.Context(), r.caller(), note); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a third session would exceed the limit
		if a := r.as(n.alice, getIt, "/containers/"+small, ""); a.status != 200 {
			t.Errorf("got status %d, %s; want the container", a.status, a.body)
		}
		r.spent(182_500_000)
	}
}

// unpaced allows every read of a size.
func unpaced() <-chan time.Time {
	turns := make(chan time.Time)
	close(turns)
	return turns
}

// TestStorageIsPaidByTheDay: a vector store is charged once per day, whichever process checks it,
// and for the current day when it is deleted; files are not stored if a day of storage would exceed
// a limit.
func TestStorageIsPaidByTheDay(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t, window(2_000_000, time.Hour)) // $0.002: 20 MB and days
	store := r.make("/vector_stores", fmt.Sprintf(`{"file_ids":[%q]}`, r.file(2_500_000)))
	r.spent(0)
	start := time.Now()
	days := func(n int) time.Time { return start.Add(time.Duration(n)*24*time.Hour + time.Minute) }
	for _, at := range []time.Time{days(0), days(1), days(1)} {
		r.guard.Storage.Charge(t.Context(), r.org, at, unpaced())
	}
	r.spent(300_000) // 3 MB
	r.guard.Storage.Charge(t.Context(), r.org, days(3), unpaced())
	r.spent(900_000)
	sent := r.fake.Totals().Requests
	big := r.file(19_000_000)
	r.as(n.alice, postIt, "/vector_stores/"+store+"/files", fmt.Sprintf(`{"file_id":%q}`, big)).fails(t, http.StatusTooManyRequests, "rate_limit_exceeded")
	if got := r.fake.Totals().Requests; got != sent+1 {
		t.Errorf("%d requests reached the provider, want the upload alone", got-sent)
	}
	note, err := r.guard.Objects.Find(t.Context(), r.caller(), wire.ObjectVectorStore, store)
	if err != nil {
		t.Fatal(err)
	}
	note.Paid = start.Unix() - 3600 // the current day
	if err := r.guard.Objects.Change(t.Context(), r.caller(), note); err != nil {
		t.Fatal(err)
	}
	if a := r.as(n.alice, dropIt, "/vector_stores/"+store, ""); a.status != 200 {
		t.Fatalf("got status %d, %s; want it deleted", a.status, a.body)
	}
	r.spent(1_200_000)
	r.guard.Storage.Charge(t.Context(), r.org, days(10), unpaced())
	r.spent(1_200_000)
}

// TestConversationsAreHeld: a response in a conversation is held for the whole content of the
// conversation, whichever call added it, and for no more once the provider has counted it.
func TestConversationsAreHeld(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t, window(roomy, time.Hour))
	text := strings.Repeat("word ", 2000)
	item := func(text string) string { return fmt.Sprintf(`{"items":[{"role":"user","content":%q}]}`, text) }
	id := r.make("/conversations", item(text))
	for range 2 {
		if a := r.as(n.alice, postIt, "/conversations/"+id+"/items", item(text)); a.status != 200 {
			t.Fatalf("got status %d, %s; want items", a.status, a.body)
		}
	}
	ask := func() (held, cost pricing.Nano) {
		t.Helper()
		a := r.as(n.alice, postIt, "/responses", fmt.Sprintf(`{"model":"gpt-4o","input":"hi","max_output_tokens":16,"conversation":%q}`, id))
		if a.status != 200 {
			t.Fatalf("got status %d, %s", a.status, a.body)
		}
		return nano(t, a.header.Get("X-Llmguard-Held-Usd")), nano(t, a.header.Get("X-Llmguard-Cost-Usd"))
	}
	held, cost := ask()
	if held < cost || cost < 6000*2500 {
		t.Errorf("held %d for a call of %d, want no less, and the conversation in it", held, cost)
	}
	next, again := ask()
	if next < again || next > again+16*10_000+100*2500 {
		t.Errorf("then held %d for a call of %d, want little more", next, again)
	}
}

// nano parses an amount in decimal USD.
func nano(t *testing.T, text string) pricing.Nano {
	t.Helper()
	n, err := pricing.ParseUSD(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
