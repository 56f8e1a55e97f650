// Package orgdata knows everything that is kept of one org: it finds, exports and
// removes it.
package orgdata

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/queue"
)

const scanStep = 1000

// scan calls fn for each page of keys that match a pattern, on every node. A key
// may come twice.
func scan(ctx context.Context, rdb redis.UniversalClient, match string, fn func(keys []string) error) error {
	one := func(ctx context.Context, node redis.UniversalClient) error {
		var cursor uint64
		for {
			keys, next, err := node.Scan(ctx, cursor, match, scanStep).Result()
			if err != nil {
				return fmt.Errorf("orgdata: look for %s: %w", match, err)
			}
			if len(keys) > 0 {
				if err := fn(keys); err != nil {
					return err
				}
			}
			cursor = next
			if cursor == 0 {
				return nil
			}
		}
	}
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return one(ctx, rdb)
	}
	// One node after the other: fn need not be safe for concurrent use.
	var nodes []*redis.Client
	found := make(chan *redis.Client)
	failed := make(chan error, 1)
	go func() {
		defer close(found)
		failed <- cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			found <- c
			return nil
		})
	}()
	for c := range found {
		nodes = append(nodes, c)
	}
	if err := <-failed; err != nil {
		return fmt.Errorf("orgdata: look for %s: %w", match, err)
	}
	for _, c := range nodes {
		if err := one(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// ownKey is the form of all keys of an org.
func ownKey(org, name string) string { return "lg:{" + org + "}:" + name }

// Names calls fn for the names of the org's own keys that begin with prefix:
// what stands behind lg:{org}: and is no pool's, nor shared by all orgs. A name
// may come twice. The org's id has no character that Redis's patterns know.
func Names(ctx context.Context, rdb redis.UniversalClient, org, prefix string, fn func(names []string) error) error {
	tag := ownKey(org, "")
	return scan(ctx, rdb, tag+prefix+"*", func(keys []string) error {
		names := make([]string, 0, len(keys))
		for _, k := range keys {
			if name := strings.TrimPrefix(k, tag); !shared(org, name) {
				names = append(names, name)
			}
		}
		return fn(names)
	})
}

// NamesOf lists what follows prefix in the names of the org's own keys, sorted.
func NamesOf(ctx context.Context, rdb redis.UniversalClient, org, prefix string) ([]string, error) {
	var out []string
	err := Names(ctx, rdb, org, prefix, func(names []string) error {
		for _, n := range names {
			out = append(out, strings.TrimPrefix(n, prefix))
		}
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

// shared reports whether a key with an org's hash tag is not the org's: pools
// have ids of the same form, and some lists of all orgs have a tag that could be
// an org's id.
func shared(org, name string) bool {
	switch org {
	case "files":
		if name == "due" {
			return true
		}
	case "batches":
		if name == "open" {
			return true
		}
	case "calib":
		return true
	}
	return queue.PoolKey(name)
}
