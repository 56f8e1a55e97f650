package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// failing is a Redis hook that fails from the second created key on.
type failing struct{ keys int }

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && strings.Contains(fmt.Sprintf("%s", cmd.Args()), `"key.create"`) {
			if f.keys++; f.keys > 1 {
				err := errors.New("Redis is gone")
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// TestBrokenApplyShowsItsKeys: if the changes fail midway, the response contains what was done,
// with the secrets of the created keys.
func TestBrokenApplyShowsItsKeys(t *testing.T) {
	d := deploy(t)
	d.rdb.AddHook(&failing{})
	got := d.expect(http.StatusServiceUnavailable, http.MethodPost, "/orgs/acme/apply",
		`{"org":{"id":"acme","users":[{"id":"carol","keys":[{"id":"c1"},{"id":"c2"}]}]}}`, `{"org":"acme"}`)
	made, _ := got["keys"].([]any)
	if changes, _ := got["changes"].([]any); len(made) != 1 || len(changes) != 2 || got["error"] == nil {
		t.Fatalf("got %v, want the user and the first key, and an error", got)
	}
	key, _ := made[0].(map[string]any)
	if secret, _ := key["secret"].(string); key["id"] != "c1" || !strings.HasPrefix(secret, "lg_live_") {
		t.Errorf("got the key %v, want c1 with its secret", key)
	}
}
