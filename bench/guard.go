package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/internal/auth/keys"
)

// guardConfig has what a real deployment has (a sliding window per user, a bucket of the org, a
// provider quota), all too large to refuse.
const guardConfig = `listen: %[1]s
admin: {listen: "%[2]s"}
redis: {addresses: ["%[3]s"]}
timeouts: {drain: 1ms}
log: {level: info, format: json}
providers:
  - id: upstream
    base_url: %[4]s/v1
    api_key: upstream
    pools:
      - {id: all, rpm: 60_000_000, tpm: 1_000_000M, concurrency: 100_000}
orgs:
  - id: bench
    over_limit: refuse
    limits:
      - {name: user-hour, subject: user, amount: $1000000, window: 1h}
      - {name: org-bucket, bucket: {capacity: $1000000, refill: $1000000/1h}}
    users:
      - id: caller
        keys: [{id: main, hash: "%[5]s"}]
`

// startGuard starts the llmguard binary at path, or builds one if path is empty, and returns
// the key that it accepts.
func (b *bench) startGuard(ctx context.Context, path string) (p *child.Process, key string, err error) {
	if path == "" {
		path, err = b.build(ctx)
		if err != nil {
			return nil, "", fmt.Errorf("%w: %w", errSkip, err)
		}
	}
	addr, err := child.FreeAddr(ctx)
	if err != nil {
		return nil, "", err
	}
	admin, err := child.FreeAddr(ctx)
	if err != nil {
		return nil, "", err
	}
	key = keys.New(keys.Live)
	conf := filepath.Join(b.dir, "llmguard.yaml")
	text := fmt.Sprintf(guardConfig, addr, admin, b.redis.Addr, b.upstreamURL(), keys.Hash(keys.Pepper{}, key))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	args := []string{"serve", "-c", conf}
	if b.profile != "" {
		args = append(args, "--cpuprofile", b.profile)
	}
	p, err = child.Start(ctx, child.Command{
		Name: guardTarget, Path: path, Args: args, Addr: addr, Dir: b.dir, Env: b.trust(),
	})
	return p, key, err
}
