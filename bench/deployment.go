package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// deploy runs f with a folder, a ready provider and a Redis, which are removed when f has
// returned.
func (b *bench) deploy(ctx context.Context, provider *fakeprovider.Server, f func() error) error {
	var err error
	b.dir, err = os.MkdirTemp("", "llmguard-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := provider.Start(); err != nil {
		return err
	}
	defer provider.Close()
	b.redis, err = b.startRedis(ctx)
	if err != nil {
		return err
	}
	defer b.redis.Stop()
	if b.guard == "" {
		b.guard, err = b.build(ctx)
		if err != nil {
			return err
		}
	}
	return f()
}

// onePoolConfig has one caller, whose limit is never reached, and one pool.
const onePoolConfig = `listen: %[1]s
admin: {listen: "%[2]s"}
redis: {addresses: ["%[3]s"]}
log: {level: info, format: json}
store: {deadline: 10s}
providers:
  - {id: upstream, base_url: "%[4]s", api_key: upstream, pools: [{%[6]s}]}
orgs:
  - id: bench
    limits: [{name: user-hour, subject: user, amount: $1000000, window: 1h}]
    users:
      - {id: caller, keys: [{id: main, hash: "%[5]s"}]}
`

// onePool returns the configuration for [bench.startRole]: one pool with these fields and a
// caller with this key.
func (b *bench) onePool(provider *fakeprovider.Server, key, pool string) func(listen, admin string) string {
	hash := keys.Hash(keys.Pepper{}, key)
	return func(listen, admin string) string {
		return fmt.Sprintf(onePoolConfig, listen, admin, b.redis.Addr, provider.BaseURL(), hash, pool)
	}
}

// startRole starts a proxy or a worker with its own configuration, and waits until it is ready.
// It also returns the address of its admin listener.
func (b *bench) startRole(ctx context.Context, name, role string,
	config func(listen, admin string) string,
) (p *child.Process, admin string, err error) {
	listen, err1 := child.FreeAddr(ctx)
	admin, err2 := child.FreeAddr(ctx)
	conf := filepath.Join(b.dir, name+".yaml")
	err3 := os.WriteFile(conf, []byte(config(listen, admin)), 0o600)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, "", err
	}
	p, err = child.Start(ctx, child.Command{
		Name: name, Path: b.guard, Args: []string{role, "-c", conf}, Addr: listen,
		Dir: b.dir,
	})
	if err != nil {
		return nil, "", err
	}
	err = p.WaitFor(ctx, startPatience, func(ctx context.Context, _ string) error {
		_, err := get(ctx, "http://"+admin+"/readyz")
		return err
	})
	if err != nil {
		p.Stop()
		return nil, "", err
	}
	return p, admin, nil
}

// build builds llmguard and returns the binary's path.
func (b *bench) build(ctx context.Context) (string, error) {
	path := filepath.Join(b.dir, "llmguard")
	text, err := exec.CommandContext(ctx, "go", "-C", "..", "build", "-o", path, "./cmd/llmguard").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("./cmd/llmguard does not build here: %w\n%s", err, text)
	}
	return path, nil
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	return do(http.DefaultClient, req, http.StatusOK)
}

// do sends a request and returns the body of the response, which must have the wanted status.
func do(client *http.Client, req *http.Request, want int) (string, error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return string(text), err
}
