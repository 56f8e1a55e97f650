// Package orgdata finds, exports and deletes all data of one org.
package orgdata

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/queue"
)

const scanStep = 1000

// scan calls fn for each page of keys that match a pattern, on every node. A key may occur
// twice.
func scan(ctx context.Context, rdb redisconn.DB, match string, fn func(keys []string) error) error {
	nodes, err := redisconn.Primaries(ctx, rdb)
	if err != nil {
		return fmt.Errorf("orgdata: look for %s: %w", match, err)
	}
	for _, node := range nodes { // one at a time, because fn need not be safe for concurrent use
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var keys []string
			keys, cursor, err = node.Scan(ctx, cursor, match, scanStep).Result()
			if err != nil {
				return fmt.Errorf("orgdata: look for %s: %w", match, err)
			}
			if len(keys) == 0 {
				continue
			}
			if err := fn(keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// own calls fn for the org's own keys with their names. A name is what follows lg:{org}: or, in a
// part of an org that is spread, lg:{org#23dh}:. Keys of pools and keys shared by all orgs are excluded.
// A key may occur twice. Org ids contain no characters that are special in Redis patterns.
func own(ctx context.Context, rdb redisconn.DB, org string, fn func(keys, names []string) error) error {
	return scan(ctx, rdb, "lg:{"+org+"[#}]*", func(found []string) error {
		keys, names := make([]string, 0, len(found)), make([]string, 0, len(found))
		for _, k := range found {
			tag, name, _ := strings.Cut(strings.TrimPrefix(k, "lg:{"), "}:")
			if ledger.OrgOf(tag) == org && !shared(tag, name) {
				keys, names = append(keys, k), append(names, name)
			}
		}
		return fn(keys, names)
	})
}

// Names calls fn for the names of the org's own keys that start with prefix. A name may occur twice.
func Names(ctx context.Context, rdb redisconn.DB, org, prefix string, fn func(names []string) error) error {
	return own(ctx, rdb, org, func(_, names []string) error {
		return fn(slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) }))
	})
}

// NamesOf returns what follows prefix in the names of the org's own keys, sorted.
func NamesOf(ctx context.Context, rdb redisconn.DB, org, prefix string) ([]string, error) {
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

// shared reports whether a key with an org's hash tag is not the org's: pool ids have the same
// form, and some lists shared by all orgs have a tag that could be an org id.
func shared(org, name string) bool {
	lists := org == "files" && name == "due" || org == "batches" && name == "open" || org == "calib"
	return lists || queue.PoolKey(name)
}
