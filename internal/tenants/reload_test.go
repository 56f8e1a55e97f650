package tenants

import (
	"context"
	"errors"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestProcessesWithTheSameName: containers often have the same host name and process id. Each reports its own result of
// a reload, and the end of one does not remove the other.
func TestProcessesWithTheSameName(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	follow := func(err error) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		reload := func(context.Context) (*Reloaded, error) { return &Reloaded{}, err }
		go func() { ended <- s.FollowReloads(ctx, "serve app:1", reload) }()
		return func() {
			cancel()
			if err := redistest.Came(t, ended); err != nil {
				t.Error(err)
			}
		}
	}
	stops := []func(){follow(nil), follow(errors.New("the file is invalid"))}
	redistest.Eventually(t, "both processes listen and have registered", func() bool {
		listening := rdb.PubSubNumSub(t.Context(), reloadChan).Val()[reloadChan]
		return listening == 2 && rdb.ZCard(t.Context(), processesKey).Val() == 2
	})
	done, err := s.ReloadAll(t.Context())
	if err != nil || len(done) != 2 || (done[0].Error == "") == (done[1].Error == "") {
		t.Errorf("got %+v and %v, want one that reloaded and one that refused its file", done, err)
	}
	stops[0]()
	if n := rdb.ZCard(t.Context(), processesKey).Val(); n != 1 {
		t.Errorf("after the end of one: got %d processes, want 1", n)
	}
	stops[1]()
}
