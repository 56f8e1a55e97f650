package driver

import (
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
)

func members(list []redisconn.Z) []redis.Z {
	out := make([]redis.Z, len(list))
	for i, z := range list {
		out[i] = redis.Z{Score: z.Score, Member: z.Member}
	}
	return out
}

func between(b redisconn.Between) *redis.ZRangeBy {
	return &redis.ZRangeBy{Min: b.Min, Max: b.Max, Count: b.Count}
}

// zs reads the reply of a command as members with scores.
type zs struct{ *redis.ZSliceCmd }

func (c zs) Val() []redisconn.Z {
	list := c.ZSliceCmd.Val()
	out := make([]redisconn.Z, len(list))
	for i, z := range list {
		member, _ := z.Member.(string)
		out[i] = redisconn.Z{Score: z.Score, Member: member}
	}
	return out
}

func (c zs) Result() ([]redisconn.Z, error) { return c.Val(), c.Err() }

// entries reads the reply of a command as entries of a stream.
type entries struct{ *redis.XMessageSliceCmd }

func (c entries) Val() []redisconn.Entry {
	list := c.XMessageSliceCmd.Val()
	out := make([]redisconn.Entry, len(list))
	for i, m := range list {
		out[i] = entry(m)
	}
	return out
}

func (c entries) Result() ([]redisconn.Entry, error) { return c.Val(), c.Err() }

func entry(m redis.XMessage) redisconn.Entry { return redisconn.Entry{ID: m.ID, Values: m.Values} }
