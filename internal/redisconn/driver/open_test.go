package driver_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// TestOptions checks that a URL and a Config reach the client, with the options of this program.
func TestOptions(t *testing.T) {
	o, err := driver.OptionsOf(driver.Config{URL: "rediss://u:secret@h:7/3"})
	if err != nil || o.Addrs[0] != "h:7" || o.Username != "u" || o.Password != "secret" || o.DB != 3 || o.TLSConfig == nil || !o.ContextTimeoutEnabled {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = driver.OptionsOf(driver.Config{
		Addresses: []string{"a:1", "b:2"}, MasterName: "m", Username: "u", Password: "p", Database: 4,
		SentinelUsername: "su", SentinelPassword: "sp", TLS: &tls.Config{ServerName: "x"},
	})
	if err != nil || len(o.Addrs) != 2 || o.MasterName != "m" || o.Username != "u" || o.Password != "p" || o.DB != 4 || o.SentinelUsername != "su" || o.SentinelPassword != "sp" || o.TLSConfig.ServerName != "x" || !o.ContextTimeoutEnabled {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestErrors: the errors of go-redis are known without its types.
func TestErrors(t *testing.T) {
	for name, is := range map[error]func(error) bool{
		redis.Nil: redisconn.IsNil, redis.ErrPoolTimeout: redisconn.PoolTimeout, redis.ErrPoolExhausted: redisconn.NotSent,
		redis.ErrClosed: redisconn.NotSent,
	} {
		if !is(name) || !is(errors.Join(errors.New("other"), fmt.Errorf("read: %w", name))) || is(errors.New("other")) || is(nil) {
			t.Errorf("%v is not recognized, or another error is", name)
		}
	}
	if !redisconn.NotSent(redis.ErrPoolTimeout) || redisconn.PoolTimeout(redis.ErrClosed) || redisconn.IsNil(redis.ErrClosed) {
		t.Error("errors are confused")
	}
}
