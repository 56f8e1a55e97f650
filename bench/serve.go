package main

import (
	"context"
	"errors"
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

// serve runs a child process: the upstream or one of the baselines. It prints its address and
// serves until it is stopped.
func serve(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	to := fs.String("upstream", "", "address of the upstream, as a URL")
	cert := fs.String("cert", "", "file with certificate and key to serve TLS with; default plain HTTP")
	h2 := fs.Bool("h2", false, "serve HTTP/2 too")
	store := fs.String("redis", "", "host:port of Redis")
	delay := fs.Duration("delay", 0, "how long the upstream takes")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	upstream, err := url.Parse(*to)
	if err != nil {
		return err
	}
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
	return listen(ctx, &http.Server{Handler: h, Protocols: protocols(*h2)}, *cert, stdout)
}

// listen serves, with TLS if there is a certificate.
func listen(ctx context.Context, srv *http.Server, cert string, stdout io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv.ReadHeaderTimeout = 10 * time.Second
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := child.Announce(stdout, l); err != nil {
		return err
	}
	if cert == "" {
		err = srv.Serve(l)
	} else {
		err = srv.ServeTLS(l, cert, cert)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
