package batch

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
)

// TestForeign checks that a batch does not exist for other owners.
func TestForeign(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.create(r.upload(chats(1)), wire.ChatCompletions)
	for _, who := range [][2]string{{"other", "alice"}, {"acme", "bob"}} {
		if _, err := r.store.Batch(t.Context(), who[0], who[1], b.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v reads it: %v", who, err)
		}
		if _, err := r.store.Cancel(t.Context(), who[0], who[1], b.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v cancels it: %v", who, err)
		}
		if list, _, err := r.store.List(t.Context(), who[0], who[1], "", 10); err != nil || len(list) != 0 {
			t.Errorf("%v lists %d: %v", who, len(list), err)
		}
	}
	for _, id := range []string{"", "batch_", "batch_}" + strings.Repeat("x", 25), b.ID + "x", strings.ToUpper(b.ID)} {
		if _, err := r.store.Batch(t.Context(), "acme", "alice", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	f := r.upload(chats(1))
	var ids []string
	for range 5 {
		ids = append([]string{r.create(f, wire.ChatCompletions).ID}, ids...)
	}
	var got []string
	after := ""
	for {
		page, more, err := r.store.List(t.Context(), "acme", "alice", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page {
			got = append(got, b.ID)
		}
		if !more {
			break
		}
		after = got[len(got)-1]
	}
	if !slices.Equal(got, ids) {
		t.Errorf("listed %v, want %v", got, ids)
	}
}
