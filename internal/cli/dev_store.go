package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/devstore"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// devKeys are the keys of dev by owner: its users, and "operator".
type devKeys map[string]string

const operator = "operator"

// Hash returns the hash of an owner's key, for the configuration.
func (k devKeys) Hash(owner string) string { return keys.Hash(keys.Pepper{}, k[owner]) }

// Secret returns an owner's key.
func (k devKeys) Secret(owner string) string { return k[owner] }

// users returns the users that need a key.
func (v devValues) users() []string {
	if len(v.Demo) == 0 {
		return []string{"alice", "bob"}
	}
	var list []string
	for _, o := range v.Demo {
		list = append(list, o.Users...)
	}
	return list
}

// keepKeys returns a key for each user and the operator. It reads them from the directory and
// adds missing ones to it.
func keepKeys(dir string, users []string) (devKeys, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	kept, path := devKeys{}, filepath.Join(dir, "keys.json")
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keys of an earlier `llmguard dev`: %s: %w", path, err)
	}
	if kept[operator] == "" {
		kept[operator] = keys.New(keys.Admin)
	}
	for _, user := range users {
		if kept[user] == "" {
			kept[user] = keys.New(keys.Live)
		}
	}
	text, err = json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return nil, err
	}
	return kept, os.WriteFile(path, append(text, '\n'), 0o600)
}

// devData returns the directory for keys, files and the child server's data. With a Redis that
// outlives this process the directory is permanent too.
func devData(o devOptions) (dir string, clean func() error, err error) {
	keep := func() error { return nil }
	if o.data != "" {
		dir, err = filepath.Abs(o.data) // printed paths work from any directory
		return dir, keep, err
	}
	if o.redis != "" {
		cache, err := os.UserCacheDir()
		return filepath.Join(cache, "llmguard-dev"), keep, err
	}
	dir, err = os.MkdirTemp("", "llmguard-data-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// devRedis describes the store in use, as text and for the configuration.
type devRedis struct{ kind, config string }

func devStore(ctx context.Context, o devOptions, dir string) (redisconn.DB, devRedis, func() error, error) {
	if o.redis != "" {
		rdb, err := app.Connect(config.Redis{URL: config.Secret(o.redis)})
		if err != nil {
			return nil, devRedis{}, nil, err
		}
		return rdb, devRedis{"the given Redis", fmt.Sprintf("{url: %q}", o.redis)}, rdb.Close, nil
	}
	store, err := devstore.Start(ctx, dir)
	if err != nil {
		return nil, devRedis{}, nil, err
	}
	kind := store.Kind
	if !store.Durable {
		kind += ". WARNING: budgets and jobs are lost on exit; install redis-server to keep them"
	}
	rdb, err := app.Connect(config.Redis{Addresses: []string{store.Addr}})
	if err != nil {
		return nil, devRedis{}, nil, errors.Join(err, store.Close())
	}
	end := func() error { return errors.Join(rdb.Close(), store.Close()) }
	return rdb, devRedis{kind, fmt.Sprintf("{addresses: [%q]}", store.Addr)}, end, nil
}

// startingStore describes the store that dev is about to start or connect to.
func startingStore(o devOptions) string {
	if o.redis != "" {
		return "the given Redis"
	}
	if _, err := exec.LookPath("redis-server"); err == nil {
		return "a new redis-server"
	}
	return "a store in memory (no redis-server on the PATH)"
}
