// Package goredis connects programs that use budget, queue or quota as libraries: it makes what their
// constructors take of a client of go-redis.
package goredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// DB is a client of Redis as the packages of this module take it. It is safe for concurrent use.
type DB = redisconn.DB

// New returns the DB of a client, which the caller closes: a *redis.Client, also of Sentinel, or a
// *redis.ClusterClient. Set ContextTimeoutEnabled in its options, so that contexts end its commands.
func New(client redis.UniversalClient) DB { return driver.DB(client) }
