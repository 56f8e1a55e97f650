package batch

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestBatchesOfAllOrgs checks that operators see the batches of every org, unfinished ones
// before newer ended ones, and can filter by org, by user, and for unfinished ones.
func TestBatchesOfAllOrgs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	open := r.create(r.upload(chats(1)), wire.ChatCompletions) // no worker runs its line
	r.runner(r.options())
	bad := r.upload(strings.Replace(chats(1), "gpt-4o-mini", "no-such-model", 1))
	failed := r.create(bad, wire.ChatCompletions)
	r.ended(failed.ID)
	redistest.Eventually(t, "its end noticed", func() bool {
		return r.rdb.ZCard(t.Context(), keptKey("acme")).Val() == 1 && r.rdb.ZScore(t.Context(), openKey, failed.ID).Err() != nil
	})
	for name, c := range map[string]struct {
		f    Filter
		most int
		want []string
		more bool
	}{
		"all":          {Filter{Orgs: []string{"globex", "acme"}}, 10, []string{open.ID, failed.ID}, false},
		"a page":       {Filter{Orgs: []string{"acme"}}, 1, []string{open.ID}, true},
		"open":         {Filter{Orgs: []string{"acme"}, Open: true}, 10, []string{open.ID}, false},
		"a user":       {Filter{Orgs: []string{"acme"}, User: "alice"}, 10, []string{open.ID, failed.ID}, false},
		"another user": {Filter{Orgs: []string{"acme"}, User: "bob"}, 10, nil, false},
		"another org":  {Filter{Orgs: []string{"globex"}}, 10, nil, false},
		"none":         {Filter{}, 10, nil, false},
	} {
		list, more, err := r.store.All(t.Context(), c.f, c.most)
		var got []string
		for _, b := range list {
			got = append(got, b.ID)
		}
		if err != nil || more != c.more || strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%s: got %v (more: %v, %v), want %v (more: %v)", name, got, more, err, c.want, c.more)
		}
	}
}
