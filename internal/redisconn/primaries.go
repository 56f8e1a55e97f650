package redisconn

import (
	"context"
	"sync"
)

// Primaries returns each server that has keys, see DB.EachPrimary.
func Primaries(ctx context.Context, rdb DB) ([]DB, error) {
	var mu sync.Mutex
	var nodes []DB
	err := rdb.EachPrimary(ctx, func(_ context.Context, node DB) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}
