// Package baseline implements what llmguard is compared with: proxies that do less, and the
// upstream behind all of them. They are fair but minimal: no logs, no metrics, no limits that
// could refuse.
package baseline

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed bucket.lua
var bucketScript string

// transport keeps enough idle connections for all callers of a benchmark.
func transport() *http.Transport {
	return &http.Transport{
		MaxIdleConns: 2048, MaxIdleConnsPerHost: 2048, IdleConnTimeout: time.Minute,
		DisableCompression: true,
	}
}

// Reverse is a bare httputil.ReverseProxy.
func Reverse(upstream *url.URL) http.Handler {
	return fullDuplex(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Header.Set("Authorization", "Bearer upstream")
		},
		Transport: transport(),
	})
}

// fullDuplex keeps the server from closing the request body when the response starts. The
// transport reads once more after the last byte to see the end. If an upstream responds faster
// than that, the transport finds the body closed, drops the connection and truncates the
// response: about one stream in 500 here.
func fullDuplex(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		next.ServeHTTP(w, r)
	})
}

// Lean implements by hand the part of ReverseProxy that an API proxy needs.
func Lean(upstream *url.URL) http.Handler {
	rt := transport()
	return fullDuplex(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := *upstream
		target.Path = r.URL.Path
		out := (&http.Request{
			Method: r.Method, URL: &target, Body: r.Body, ContentLength: r.ContentLength,
			Header: http.Header{
				"Authorization": {"Bearer upstream"},
				"Content-Type":  r.Header["Content-Type"],
			},
		}).WithContext(r.Context())
		resp, err := rt.RoundTrip(out)
		if err != nil {
			http.Error(w, "upstream", http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		relay(w, resp)
	}))
}

// relay copies a response, and flushes each piece if its length is unknown.
func relay(w http.ResponseWriter, resp *http.Response) {
	for _, name := range []string{"Content-Type", "Content-Length", "X-Request-Id"} {
		if v := resp.Header[name]; v != nil {
			w.Header()[name] = v
		}
	}
	w.WriteHeader(resp.StatusCode)
	if resp.ContentLength >= 0 {
		_, _ = io.Copy(w, resp.Body)
		return
	}
	flush := http.NewResponseController(w).Flush
	buf := make([]byte, 8<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			_, _ = w.Write(buf[:n])
			_ = flush()
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			panic(http.ErrAbortHandler) // must not look like the end of the stream
		}
	}
}

// WithRedis adds the Redis calls of a guarded call: two scripts before it (hold and quota), and
// one after it (settlement).
func WithRedis(next http.Handler, rdb *redis.Client) http.Handler {
	script := redis.NewScript(bucketScript)
	spend := func(ctx context.Context, key string) error {
		reply, err := script.EvalSha(ctx, rdb, []string{key}, 1e15, 1e12, 100).Slice()
		if err == nil && reply[0] != int64(1) {
			err = fmt.Errorf("bucket %s is empty", key)
		}
		return err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, key := range []string{"bench:{org}:bucket", "bench:{pool}:quota"} {
			if err := spend(r.Context(), key); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		next.ServeHTTP(w, r)
		_ = spend(context.WithoutCancel(r.Context()), "bench:{org}:settled")
	})
}

// LoadScript loads the script into Redis, so that EVALSHA finds it.
func LoadScript(ctx context.Context, rdb *redis.Client) error {
	return redis.NewScript(bucketScript).Load(ctx, rdb).Err()
}
