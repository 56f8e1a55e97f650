// Package driver is package redisconn on go-redis. It creates clients with the options of this program, so that
// tests of outages use the timeouts of releases.
package driver

import (
	"crypto/tls"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmguard/llmguard/internal/redisconn"
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
		Addrs: addrs, ClientName: clientName,
		DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
		PoolSize: 64, MinIdleConns: 2, ContextTimeoutEnabled: true, MaxRetries: 2,
		Protocol: 2, // RESP3 is not needed, and checking for its push messages costs a system call per command
	}
}

// Config says where the servers are, and how to log in.
type Config struct {
	Mode             Mode
	URL              string // of a single server, with all the rest but Prefix; "": see Addresses
	Addresses        []string
	MasterName       string // with Sentinel
	Username         string
	Password         string
	SentinelUsername string
	SentinelPassword string
	Database         int
	TLS              *tls.Config // nil: none
	Prefix           string      // of keys and channels, see OpenPrefixed
}

// Connect returns a DB; it does not connect yet. The error means that the URL is not one of Redis.
func Connect(c Config) (redisconn.DB, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	return DB(OpenPrefixed(c.Mode, o, c.Prefix)), nil
}

func (c Config) options() (*redis.UniversalOptions, error) {
	if c.URL != "" {
		u, err := redis.ParseURL(c.URL)
		if err != nil {
			return nil, err
		}
		o := Options(u.Addr)
		o.Username, o.Password, o.DB, o.TLSConfig = u.Username, u.Password, u.DB, u.TLSConfig
		return o, nil
	}
	o := Options(c.Addresses...)
	o.MasterName = c.MasterName
	o.Username, o.Password, o.DB, o.TLSConfig = c.Username, c.Password, c.Database, c.TLS
	o.SentinelUsername, o.SentinelPassword = c.SentinelUsername, c.SentinelPassword
	return o, nil
}

// Quiet ends the log of go-redis, which also returns as errors what it logs.
func Quiet() { logging.Disable() }

// Open returns a client; it does not connect yet.
func Open(mode Mode, o *redis.UniversalOptions) redis.UniversalClient {
	return OpenPrefixed(mode, o, "")
}

// OpenPrefixed returns a client that adds a prefix to every key and channel, so that several
// deployments can share a database. Keys that it returns and that its commands name do not have
// it. It changes o.
func OpenPrefixed(mode Mode, o *redis.UniversalOptions, prefix string) redis.UniversalClient {
	if prefix != "" {
		o.ClientName = clientName + "@" + prefix // see prefixOf
	}
	if mode == Cluster {
		return openCluster(o, prefix)
	}
	var c *redis.Client
	if mode == Sentinel {
		c = redis.NewFailoverClient(o.Failover())
	} else {
		c = redis.NewClient(o.Simple())
	}
	if prefix != "" {
		c.AddHook(&prefixHook{prefix: prefix})
	}
	return c
}

// openCluster returns a client whose nodes also add the prefix, because some commands are sent
// to each node. The cluster's client adds it too: it finds the node by the whole key.
func openCluster(o *redis.UniversalOptions, prefix string) *redis.ClusterClient {
	options := o.Cluster()
	options.ClusterStateReloadInterval = 250 * time.Millisecond
	if prefix == "" {
		return redis.NewClusterClient(options)
	}
	hook := &prefixHook{prefix: prefix, cluster: true}
	options.NewClient = func(o *redis.Options) *redis.Client {
		node := redis.NewClient(o)
		node.AddHook(hook)
		return node
	}
	c := redis.NewClusterClient(options)
	c.AddHook(hook)
	return c
}
