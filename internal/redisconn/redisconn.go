// Package redisconn opens Redis clients the one way this program uses them, so
// that tests of outages try the timeouts that are shipped.
package redisconn

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Mode is how the servers are put together.
type Mode string

// Modes. The zero value is Single.
const (
	Single   Mode = "single"
	Sentinel Mode = "sentinel"
	Cluster  Mode = "cluster"
)

// Options holds what measured failovers taught: one dial attempt a command and
// a cluster map that is re-read four times a second, while it is used, follow a
// failover within 0.5 s; the library's defaults take about a minute. Addrs are those of the server, the sentinels or
// some cluster nodes.
func Options(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addrs, ClientName: "llmguard",
		DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
		PoolSize: 64, MinIdleConns: 2, ContextTimeoutEnabled: true, MaxRetries: 2,
		Protocol: 2, // nothing of RESP3 is used, and looking for its pushes costs a system call a command
	}
}

// Open returns a client; it does not wait for a server to answer.
func Open(mode Mode, o *redis.UniversalOptions) redis.UniversalClient {
	switch mode {
	case Cluster:
		c := o.Cluster()
		c.ClusterStateReloadInterval = 250 * time.Millisecond
		return redis.NewClusterClient(c)
	case Sentinel:
		return redis.NewFailoverClient(o.Failover())
	default:
		return redis.NewClient(o.Simple())
	}
}
