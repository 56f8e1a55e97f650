package batch

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestOpenBatches checks that an org and each of its users have a bounded number of
// unfinished batches, that the end of one makes room for another, and that each org has its
// own bound.
func TestOpenBatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addOrg("other")
	r.store.Bound(Bounds{Open: 3, UserOpen: 2})
	f := r.upload(strings.Replace(chats(1), "gpt-4o-mini", "no-such-model", 1))
	try := func(user string) (*Batch, error) {
		return r.store.Create(t.Context(), Request{
			Owner: Owner{Org: "acme", User: user}, File: f, Endpoint: wire.ChatCompletions,
		})
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
	redistest.Eventually(t, "a place for another batch", func() bool { _, err := try("carol"); return err == nil })
}

// TestBatchThatNeverCameToBe checks that a batch counts only for a while if its process
// died before creating it.
func TestBatchThatNeverCameToBe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store.Bound(Bounds{Open: 1})
	o := Owner{Org: "acme", User: "alice"}
	at := time.Now()
	count := func(id string, after time.Duration) error {
		r.store.clock = strconv.FormatInt(at.Add(after).UnixMicro(), 10)
		return r.store.count(t.Context(), o, id)
	}
	for range 2 { // repeated, as after a lost reply
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

// TestEndedBatches checks that the newest of an org's ended batches are kept, so that their
// records are bounded, and that unfinished ones are not affected.
func TestEndedBatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store.Bound(Bounds{Kept: 2})
	bad := r.upload(strings.Replace(chats(1), "gpt-4o-mini", "no-such-model", 1))
	open := r.create(r.upload(chats(1)), wire.ChatCompletions) // no worker runs its line
	r.runner(r.options())
	var ids []string
	for i := range 4 {
		b := r.create(bad, wire.ChatCompletions)
		r.ended(b.ID)
		redistest.Eventually(t, "its end noticed", func() bool {
			n := r.rdb.ZCard(t.Context(), keptKey("acme")).Val()
			return n == int64(min(i+1, 2)) && r.rdb.ZScore(t.Context(), openKey, b.ID).Err() != nil
		})
		ids = append(ids, b.ID)
		r.rdb.ZIncrBy(t.Context(), keptKey("acme"), float64(i-100), "alice "+b.ID) // as if created seconds apart
	}
	list, _, err := r.store.List(t.Context(), "acme", "alice", "", 10)
	if err != nil || len(list) != 3 || list[0].ID != ids[3] || list[1].ID != ids[2] || list[2].ID != open.ID {
		t.Errorf("%v: %d batches are listed, want the open one and the two that ended last", err, len(list))
	}
	if n := r.rdb.Exists(t.Context(), recordKey(ids[0]), recordKey(ids[1])).Val(); n != 0 {
		t.Errorf("%d records are left of batches that are forgotten", n)
	}
}

// TestProblemsAreBounded checks that the problems of a file take a bounded part of Redis,
// however long each message is, and that the first one is always reported.
func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 1000, 2 * maxProblemBytes} {
		var problems []Problem
		for range maxProblems {
			problems = append(problems, *problem("invalid_request", "body", strings.Repeat("x", size)))
		}
		text, err := problemText(problems)
		if err != nil || len(text) > max(maxProblemBytes, size+100) || !strings.Contains(string(text), "xxx") {
			t.Errorf("%v: %d bytes for messages of %d", err, len(text), size)
		}
	}
}
