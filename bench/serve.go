package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/bench/baseline"
	"github.com/llmguard/llmguard/bench/child"
)

// serve is a child process: the upstream or one of the baselines. It prints
// its address and serves until it is told to end.
func serve(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	to := fs.String("upstream", "", "host:port of the upstream")
	store := fs.String("redis", "", "host:port of Redis")
	delay := fs.Duration("delay", 0, "how long the upstream takes")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	upstream := &url.URL{Scheme: "http", Host: *to}
	var h http.Handler
	switch args[0] {
	case "upstream":
		h = baseline.Upstream(*delay)
	case "reverse":
		h = baseline.Reverse(upstream)
	case "lean":
		h = baseline.Lean(upstream)
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
	if *store != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *store, PoolSize: 256})
		defer rdb.Close()
		if err := baseline.LoadScript(ctx, rdb); err != nil {
			return err
		}
		h = baseline.WithRedis(h, rdb)
	}
	return listen(ctx, h, stdout)
}

func listen(ctx context.Context, h http.Handler, stdout io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := child.Announce(stdout, l); err != nil {
		return err
	}
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
