package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/bench/load"
)

// target is a proxy to measure.
type target struct {
	name string
	key  string // callers' Bearer key
	proc *child.Process
}

// probe makes one call to check that the target is up.
func (t *target) probe(ctx context.Context, addr string) error { return load.Probe(ctx, addr, t.key) }

// Target names, in the order of the table.
const (
	nginxTarget   = "nginx"
	reverse       = "reverse"
	reverseRedis  = "reverse+redis3" // the reference for ratios
	leanRedis     = "lean+redis3"
	guardTarget   = "llmguard"
	targetsInUse  = nginxTarget + "," + reverse + "," + reverseRedis + "," + leanRedis + "," + guardTarget
	startPatience = time.Minute
)

// errSkip means that a target cannot run here; the reason is printed.
var errSkip = errors.New("skipped")

// start starts Redis, the upstream and every selected target.
func (b *bench) start(ctx context.Context) error {
	var err error
	b.redis, err = b.startRedis(ctx)
	if err != nil {
		return err
	}
	b.upstream, err = b.startUpstream(ctx)
	if err != nil {
		return err
	}
	wanted := b.only
	if wanted == "" {
		wanted = targetsInUse
	}
	for name := range strings.SplitSeq(wanted, ",") {
		t, err := b.startTarget(ctx, name)
		if err == nil {
			b.targets = append(b.targets, t)
			err = t.proc.WaitFor(ctx, startPatience, t.probe)
		}
		switch {
		case errors.Is(err, errSkip):
			fmt.Fprintf(b.log, "%s: %v\n", name, err)
		case err != nil:
			return err
		}
	}
	if len(b.targets) == 0 {
		return errors.New("no target can run here")
	}
	return nil
}

func (b *bench) startTarget(ctx context.Context, name string) (*target, error) {
	t := &target{name: name, key: "bench"}
	var err error
	switch name {
	case nginxTarget:
		t.proc, err = b.startNginx(ctx)
	case reverse:
		t.proc, err = b.self(ctx, name, "reverse", "-upstream", b.upstreamURL())
	case reverseRedis:
		t.proc, err = b.self(ctx, name, "reverse", "-upstream", b.upstreamURL(), "-redis", b.redis.Addr)
	case leanRedis:
		t.proc, err = b.self(ctx, name, "lean", "-upstream", b.upstreamURL(), "-redis", b.redis.Addr)
	case guardTarget:
		t.proc, t.key, err = b.startGuard(ctx, b.guard)
	default:
		if path, ok := strings.CutPrefix(name, guardTarget+"="); ok {
			t.proc, t.key, err = b.startGuard(ctx, path)
			break
		}
		err = fmt.Errorf("no target %q; there are %s", name, targetsInUse)
	}
	return t, err
}

// stop stops all processes, targets first.
func (b *bench) stop() {
	for _, t := range b.targets {
		t.proc.Stop()
	}
	for _, p := range []*child.Process{b.upstream, b.redis} {
		if p != nil {
			p.Stop()
		}
	}
}

// self starts this program as a child with another role.
func (b *bench) self(ctx context.Context, name string, args ...string) (*child.Process, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return child.Start(ctx, child.Command{Name: name, Path: path, Args: args, Dir: b.dir, Env: b.trust()})
}

func (b *bench) startRedis(ctx context.Context) (*child.Process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("needed by most targets (make test installs it): %w", err)
	}
	addr, err := child.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	aof := "yes" // as in production
	if b.memory {
		aof = "no"
	}
	_, port, _ := strings.Cut(addr, ":")
	p, err := child.Start(ctx, child.Command{
		Name: "redis", Path: path, Addr: addr, Dir: b.dir,
		Args: []string{
			"--port", port, "--bind", "127.0.0.1", "--dir", b.dir, "--save", "",
			"--appendonly", aof, "--appendfsync", "everysec", "--maxmemory-policy", "noeviction",
		},
	})
	if err != nil {
		return nil, err
	}
	return p, p.WaitFor(ctx, startPatience, child.Dial)
}

// nginxConf configures plain nginx as a proxy, without logs and without buffering bodies on
// disk.
const nginxConf = `daemon off;
pid %[1]s/nginx.pid;
error_log stderr crit;
worker_processes %[4]d;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  client_max_body_size 4m; client_body_buffer_size 4m;
  keepalive_requests 1000000000;
  upstream backend { server %[3]s; keepalive 512; keepalive_requests 1000000000; }
  server {
    listen %[2]s;
    location / {
      proxy_pass %[5]s://backend;
      proxy_ssl_session_reuse on;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer upstream";
      proxy_buffering off;
    }
  }
}
`

func (b *bench) startNginx(ctx context.Context) (*child.Process, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		return nil, fmt.Errorf("%w: nginx is not installed", errSkip)
	}
	addr, err := child.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(b.dir, "nginx.conf")
	text := fmt.Sprintf(nginxConf, b.dir, addr, b.upstream.Addr, runtime.GOMAXPROCS(0), b.scheme())
	if os.Geteuid() == 0 {
		text = "user root;\n" + text // so that its workers can access our folder
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return child.Start(ctx, child.Command{
		Name: "nginx", Path: path, Addr: addr, Dir: b.dir,
		Args: []string{"-c", conf, "-p", b.dir, "-e", "stderr"},
	})
}
