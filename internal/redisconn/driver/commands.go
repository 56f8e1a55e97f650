package driver

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// commands implements redisconn.Commands for a client and for a pipeline.
type commands struct{ c cmdable }

type cmdable interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// Names that keep a command on a line.
type (
	Context = context.Context
	life    = time.Duration
	fields  = redisconn.Cmd[map[string]string]
	flag    = redisconn.Cmd[bool]
	list    = redisconn.Cmd[[]string]
	number  = redisconn.Cmd[int64]
	reply   = redisconn.Reply
	scan    = redisconn.Scan
	scored  = redisconn.Cmd[[]redisconn.Z]
	status  = redisconn.Cmd[string]
	stream  = redisconn.Cmd[[]redisconn.Entry]
	str     = redisconn.Text
	values  = redisconn.Cmd[[]any]
)

func (x commands) EvalSha(ctx Context, sha1 string, keys []string, args ...any) reply {
	return x.c.EvalSha(ctx, sha1, keys, args...)
}
func (x commands) Eval(ctx Context, script string, keys []string, args ...any) reply {
	return x.c.Eval(ctx, script, keys, args...)
}

func (x commands) Del(ctx Context, keys ...string) number         { return x.c.Del(ctx, keys...) }
func (x commands) Exists(ctx Context, keys ...string) number      { return x.c.Exists(ctx, keys...) }
func (x commands) Expire(ctx Context, key string, life life) flag { return x.c.Expire(ctx, key, life) }
func (x commands) MemoryUsage(ctx Context, key string, samples ...int) number {
	return x.c.MemoryUsage(ctx, key, samples...)
}
func (x commands) PExpire(ctx Context, key string, life life) flag {
	return x.c.PExpire(ctx, key, life)
}
func (x commands) PTTL(ctx Context, key string) redisconn.Cmd[life] { return x.c.PTTL(ctx, key) }
func (x commands) Scan(ctx Context, cursor uint64, match string, count int64) scan {
	return x.c.Scan(ctx, cursor, match, count)
}
func (x commands) Unlink(ctx Context, keys ...string) number { return x.c.Unlink(ctx, keys...) }

func (x commands) Get(ctx Context, key string) str              { return x.c.Get(ctx, key) }
func (x commands) GetEx(ctx Context, key string, life life) str { return x.c.GetEx(ctx, key, life) }
func (x commands) MGet(ctx Context, keys ...string) values      { return x.c.MGet(ctx, keys...) }
func (x commands) Set(ctx Context, key string, value any, life life) status {
	return x.c.Set(ctx, key, value, life)
}
func (x commands) SetNX(ctx Context, key string, value any, life life) flag {
	return x.c.SetNX(ctx, key, value, life)
}
func (x commands) SetXX(ctx Context, key string, value any, life life) flag {
	return x.c.SetXX(ctx, key, value, life)
}

func (x commands) HDel(ctx Context, key string, fields ...string) number {
	return x.c.HDel(ctx, key, fields...)
}
func (x commands) HExists(ctx Context, key, field string) flag { return x.c.HExists(ctx, key, field) }
func (x commands) HGet(ctx Context, key, field string) str     { return x.c.HGet(ctx, key, field) }
func (x commands) HGetAll(ctx Context, key string) fields      { return x.c.HGetAll(ctx, key) }
func (x commands) HKeys(ctx Context, key string) list          { return x.c.HKeys(ctx, key) }
func (x commands) HLen(ctx Context, key string) number         { return x.c.HLen(ctx, key) }
func (x commands) HMGet(ctx Context, key string, fields ...string) values {
	return x.c.HMGet(ctx, key, fields...)
}
func (x commands) HScan(ctx Context, key string, cursor uint64, match string, count int64) scan {
	return x.c.HScan(ctx, key, cursor, match, count)
}
func (x commands) HSet(ctx Context, key string, values ...any) number {
	return x.c.HSet(ctx, key, values...)
}
func (x commands) HSetNX(ctx Context, key, field string, value any) flag {
	return x.c.HSetNX(ctx, key, field, value)
}

func (x commands) LRange(ctx Context, key string, start, stop int64) list {
	return x.c.LRange(ctx, key, start, stop)
}

func (x commands) SAdd(ctx Context, key string, members ...any) number {
	return x.c.SAdd(ctx, key, members...)
}
func (x commands) SIsMember(ctx Context, key string, member any) flag {
	return x.c.SIsMember(ctx, key, member)
}
func (x commands) SMembers(ctx Context, key string) list { return x.c.SMembers(ctx, key) }
func (x commands) SRem(ctx Context, key string, members ...any) number {
	return x.c.SRem(ctx, key, members...)
}

func (x commands) ZAdd(ctx Context, key string, all ...redisconn.Z) number {
	return x.c.ZAdd(ctx, key, members(all)...)
}
func (x commands) ZAddGT(ctx Context, key string, all ...redisconn.Z) number {
	return x.c.ZAddGT(ctx, key, members(all)...)
}
func (x commands) ZAddNX(ctx Context, key string, all ...redisconn.Z) number {
	return x.c.ZAddNX(ctx, key, members(all)...)
}
func (x commands) ZAddXX(ctx Context, key string, all ...redisconn.Z) number {
	return x.c.ZAddXX(ctx, key, members(all)...)
}
func (x commands) ZCard(ctx Context, key string) number { return x.c.ZCard(ctx, key) }
func (x commands) ZCount(ctx Context, key, min, max string) number {
	return x.c.ZCount(ctx, key, min, max)
}
func (x commands) ZRange(ctx Context, key string, start, stop int64) list {
	return x.c.ZRange(ctx, key, start, stop)
}
func (x commands) ZRangeByLex(ctx Context, key string, b redisconn.Between) list {
	return x.c.ZRangeByLex(ctx, key, between(b))
}
func (x commands) ZRangeByScore(ctx Context, key string, b redisconn.Between) list {
	return x.c.ZRangeByScore(ctx, key, between(b))
}
func (x commands) ZRangeByScoreWithScores(ctx Context, key string, b redisconn.Between) scored {
	return zs{x.c.ZRangeByScoreWithScores(ctx, key, between(b))}
}
func (x commands) ZRangeWithScores(ctx Context, key string, start, stop int64) scored {
	return zs{x.c.ZRangeWithScores(ctx, key, start, stop)}
}
func (x commands) ZRank(ctx Context, key, member string) number { return x.c.ZRank(ctx, key, member) }
func (x commands) ZRem(ctx Context, key string, members ...any) number {
	return x.c.ZRem(ctx, key, members...)
}
func (x commands) ZRemRangeByRank(ctx Context, key string, start, stop int64) number {
	return x.c.ZRemRangeByRank(ctx, key, start, stop)
}
func (x commands) ZRemRangeByScore(ctx Context, key, min, max string) number {
	return x.c.ZRemRangeByScore(ctx, key, min, max)
}
func (x commands) ZRevRange(ctx Context, key string, start, stop int64) list {
	return x.c.ZRevRange(ctx, key, start, stop)
}
func (x commands) ZRevRangeWithScores(ctx Context, key string, start, stop int64) scored {
	return zs{x.c.ZRevRangeWithScores(ctx, key, start, stop)}
}
func (x commands) ZRevRank(ctx Context, key, member string) number {
	return x.c.ZRevRank(ctx, key, member)
}
func (x commands) ZScan(ctx Context, key string, cursor uint64, match string, count int64) scan {
	return x.c.ZScan(ctx, key, cursor, match, count)
}
func (x commands) ZScore(ctx Context, key, member string) redisconn.Cmd[float64] {
	return x.c.ZScore(ctx, key, member)
}

func (x commands) XAdd(ctx Context, key, id string, values any) status {
	return x.c.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: id, Values: values})
}
func (x commands) XDel(ctx Context, key string, ids ...string) number {
	return x.c.XDel(ctx, key, ids...)
}
func (x commands) XInfoStream(ctx Context, key string) (redisconn.Stream, error) {
	s, err := x.c.XInfoStream(ctx, key).Result()
	if err != nil {
		return redisconn.Stream{}, err
	}
	return redisconn.Stream{Length: s.Length, Added: s.EntriesAdded, First: entry(s.FirstEntry)}, nil
}
func (x commands) XLen(ctx Context, key string) number { return x.c.XLen(ctx, key) }
func (x commands) XRange(ctx Context, key, start, stop string) stream {
	return entries{x.c.XRange(ctx, key, start, stop)}
}
func (x commands) XRangeN(ctx Context, key, start, stop string, count int64) stream {
	return entries{x.c.XRangeN(ctx, key, start, stop, count)}
}
func (x commands) XRevRangeN(ctx Context, key, start, stop string, count int64) stream {
	return entries{x.c.XRevRangeN(ctx, key, start, stop, count)}
}
func (x commands) XTrimMaxLenApprox(ctx Context, key string, maxLen, limit int64) number {
	return x.c.XTrimMaxLenApprox(ctx, key, maxLen, limit)
}

func (x commands) ConfigGet(ctx Context, name string) fields { return x.c.ConfigGet(ctx, name) }
func (x commands) DBSize(ctx Context) number                 { return x.c.DBSize(ctx) }
func (x commands) Do(ctx Context, args ...any) reply         { return x.c.Do(ctx, args...) }
func (x commands) Info(ctx Context, sections ...string) str  { return x.c.Info(ctx, sections...) }
func (x commands) Ping(ctx Context) status                   { return x.c.Ping(ctx) }
func (x commands) Publish(ctx Context, channel string, message any) number {
	return x.c.Publish(ctx, channel, message)
}
func (x commands) Time(ctx Context) redisconn.Cmd[time.Time] { return x.c.Time(ctx) }
