package batch

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/wire"
)

// TestOpenBatches: an org and each of its users have a bounded number of open batches;
// the end of one makes room for another, and another org has its own.
func TestOpenBatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addOrg("other")
	r.store.Limit(3, 2)
	f := r.upload(strings.Replace(chats(1), "gpt-4o-mini", "no-such-model", 1))
	try := func(user string) (*Batch, error) {
		return r.store.Create(t.Context(), Request{Owner: Owner{Org: "acme", User: user}, File: f, Endpoint: wire.ChatCompletions})
	}
	full := func(user string, ofUser bool, limit int) {
		t.Helper()
		var e *FullError
		if _, err := try(user); !errors.As(err, &e) || e.User != ofUser || e.Limit != limit {
			t.Fatalf("got %v, want a refusal for %d", err, limit)
		}
	}
	for range 2 {
		if _, err := try("alice"); err != nil {
			t.Fatal(err)
		}
	}
	full("alice", true, 2)
	if _, err := try("bob"); err != nil {
		t.Fatal(err)
	}
	full("carol", false, 3)
	r.createFor("other", chats(1))

	r.runner(r.options())
	eventually(t, "a place for another batch", func() bool { _, err := try("carol"); return err == nil })
}

// TestBatchThatNeverCameToBe: what a process counted that died before it made the batch
// counts for a while only.
func TestBatchThatNeverCameToBe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store.Limit(1, 0)
	o := Owner{Org: "acme", User: "alice"}
	at := time.Now()
	count := func(id string, after time.Duration) error {
		r.store.clock = strconv.FormatInt(at.Add(after).UnixMicro(), 10)
		return r.store.count(t.Context(), o, id)
	}
	for range 2 { // the same again, after a lost reply
		if err := count("lost", 0); err != nil {
			t.Fatal(err)
		}
	}
	var full *FullError
	if err := count("next", unconfirmedFor-time.Minute); !errors.As(err, &full) {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := count("next", unconfirmedFor+time.Minute); err != nil {
		t.Error(err)
	}
}
