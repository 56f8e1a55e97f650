package redisconn

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Primaries returns a client for each server that has keys: the primaries of a cluster, or the
// client itself.
func Primaries(ctx context.Context, rdb redis.UniversalClient) ([]redis.UniversalClient, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return []redis.UniversalClient{rdb}, nil
	}
	var mu sync.Mutex
	var nodes []redis.UniversalClient
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, c)
		return nil
	})
	return nodes, err
}
