// Package redisconn creates Redis clients with the options of this program, so that tests of
// outages use the timeouts of releases.
package redisconn

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Mode is the topology of the servers.
type Mode string

// Modes. The zero value is Single.
const (
	Single   Mode = "single"
	Sentinel Mode = "sentinel"
	Cluster  Mode = "cluster"
)

// Options returns the client options, chosen from measured failovers. With one dial attempt per
// command, and a cluster map that is reread four times a second while in use, clients follow a
// failover within 0.5 s; with the library's defaults it takes about a minute. addrs are those
// of the server, the sentinels or some cluster nodes.
func Options(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addrs, ClientName: "llmguard",
		DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
		PoolSize: 64, MinIdleConns: 2, ContextTimeoutEnabled: true, MaxRetries: 2,
		Protocol: 2, // RESP3 is not needed, and checking for its push messages costs a system call per command
	}
}

// Open returns a client; it does not connect yet.
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
