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
	ctx    = context.Context
	life   = time.Duration
	fields = redisconn.Cmd[map[string]string]
	flag   = redisconn.Cmd[bool]
	list   = redisconn.Cmd[[]string]
	number = redisconn.Cmd[int64]
	reply  = redisconn.Reply
	scan   = redisconn.Scan
	scored = redisconn.Cmd[[]redisconn.Z]
	status = redisconn.Cmd[string]
	stream = redisconn.Cmd[[]redisconn.Entry]
	str    = redisconn.Text
	values = redisconn.Cmd[[]any]
)

func (x commands) EvalSha(c ctx, sha1 string, keys []string, args ...any) reply {
	return x.c.EvalSha(c, sha1, keys, args...)
}

func (x commands) Eval(c ctx, script string, keys []string, args ...any) reply {
	return x.c.Eval(c, script, keys, args...)
}

func (x commands) Del(c ctx, keys ...string) number         { return x.c.Del(c, keys...) }
func (x commands) Exists(c ctx, keys ...string) number      { return x.c.Exists(c, keys...) }
func (x commands) Expire(c ctx, key string, life life) flag { return x.c.Expire(c, key, life) }
func (x commands) MemoryUsage(c ctx, key string, samples ...int) number {
	return x.c.MemoryUsage(c, key, samples...)
}

func (x commands) PExpire(c ctx, key string, life life) flag {
	return x.c.PExpire(c, key, life)
}
func (x commands) PTTL(c ctx, key string) redisconn.Cmd[life] { return x.c.PTTL(c, key) }
func (x commands) Scan(c ctx, cursor uint64, match string, count int64) scan {
	return x.c.Scan(c, cursor, match, count)
}
func (x commands) Unlink(c ctx, keys ...string) number { return x.c.Unlink(c, keys...) }

func (x commands) Get(c ctx, key string) str              { return x.c.Get(c, key) }
func (x commands) GetEx(c ctx, key string, life life) str { return x.c.GetEx(c, key, life) }
func (x commands) MGet(c ctx, keys ...string) values      { return x.c.MGet(c, keys...) }
func (x commands) Set(c ctx, key string, value any, life life) status {
	return x.c.Set(c, key, value, life)
}

func (x commands) SetNX(c ctx, key string, value any, life life) flag {
	return x.c.SetNX(c, key, value, life)
}

func (x commands) SetXX(c ctx, key string, value any, life life) flag {
	return x.c.SetXX(c, key, value, life)
}

func (x commands) HDel(c ctx, key string, fields ...string) number {
	return x.c.HDel(c, key, fields...)
}
func (x commands) HExists(c ctx, key, field string) flag { return x.c.HExists(c, key, field) }
func (x commands) HGet(c ctx, key, field string) str     { return x.c.HGet(c, key, field) }
func (x commands) HGetAll(c ctx, key string) fields      { return x.c.HGetAll(c, key) }
func (x commands) HKeys(c ctx, key string) list          { return x.c.HKeys(c, key) }
func (x commands) HLen(c ctx, key string) number         { return x.c.HLen(c, key) }
func (x commands) HMGet(c ctx, key string, fields ...string) values {
	return x.c.HMGet(c, key, fields...)
}

func (x commands) HScan(c ctx, key string, cursor uint64, match string, count int64) scan {
	return x.c.HScan(c, key, cursor, match, count)
}

func (x commands) HSet(c ctx, key string, values ...any) number {
	return x.c.HSet(c, key, values...)
}

func (x commands) HSetNX(c ctx, key, field string, value any) flag {
	return x.c.HSetNX(c, key, field, value)
}

func (x commands) LRange(c ctx, key string, start, stop int64) list {
	return x.c.LRange(c, key, start, stop)
}

func (x commands) SAdd(c ctx, key string, members ...any) number {
	return x.c.SAdd(c, key, members...)
}

func (x commands) SIsMember(c ctx, key string, member any) flag {
	return x.c.SIsMember(c, key, member)
}
func (x commands) SMembers(c ctx, key string) list { return x.c.SMembers(c, key) }
func (x commands) SRem(c ctx, key string, members ...any) number {
	return x.c.SRem(c, key, members...)
}

func (x commands) ZAdd(c ctx, key string, all ...redisconn.Z) number {
	return x.c.ZAdd(c, key, members(all)...)
}

func (x commands) ZAddGT(c ctx, key string, all ...redisconn.Z) number {
	return x.c.ZAddGT(c, key, members(all)...)
}

func (x commands) ZAddNX(c ctx, key string, all ...redisconn.Z) number {
	return x.c.ZAddNX(c, key, members(all)...)
}

func (x commands) ZAddXX(c ctx, key string, all ...redisconn.Z) number {
	return x.c.ZAddXX(c, key, members(all)...)
}
func (x commands) ZCard(c ctx, key string) number { return x.c.ZCard(c, key) }
func (x commands) ZCount(c ctx, key, min, max string) number {
	return x.c.ZCount(c, key, min, max)
}

func (x commands) ZRange(c ctx, key string, start, stop int64) list {
	return x.c.ZRange(c, key, start, stop)
}

func (x commands) ZRangeByLex(c ctx, key string, b redisconn.Between) list {
	return x.c.ZRangeByLex(c, key, between(b))
}

func (x commands) ZRangeByScore(c ctx, key string, b redisconn.Between) list {
	return x.c.ZRangeByScore(c, key, between(b))
}

func (x commands) ZRangeByScoreWithScores(c ctx, key string, b redisconn.Between) scored {
	return zs{x.c.ZRangeByScoreWithScores(c, key, between(b))}
}

func (x commands) ZRangeWithScores(c ctx, key string, start, stop int64) scored {
	return zs{x.c.ZRangeWithScores(c, key, start, stop)}
}
func (x commands) ZRank(c ctx, key, member string) number { return x.c.ZRank(c, key, member) }
func (x commands) ZRem(c ctx, key string, members ...any) number {
	return x.c.ZRem(c, key, members...)
}

func (x commands) ZRemRangeByRank(c ctx, key string, start, stop int64) number {
	return x.c.ZRemRangeByRank(c, key, start, stop)
}

func (x commands) ZRemRangeByScore(c ctx, key, min, max string) number {
	return x.c.ZRemRangeByScore(c, key, min, max)
}

func (x commands) ZRevRange(c ctx, key string, start, stop int64) list {
	return x.c.ZRevRange(c, key, start, stop)
}

func (x commands) ZRevRangeWithScores(c ctx, key string, start, stop int64) scored {
	return zs{x.c.ZRevRangeWithScores(c, key, start, stop)}
}

func (x commands) ZRevRank(c ctx, key, member string) number {
	return x.c.ZRevRank(c, key, member)
}

func (x commands) ZScan(c ctx, key string, cursor uint64, match string, count int64) scan {
	return x.c.ZScan(c, key, cursor, match, count)
}

func (x commands) ZScore(c ctx, key, member string) redisconn.Cmd[float64] {
	return x.c.ZScore(c, key, member)
}

func (x commands) XAdd(c ctx, key, id string, values any) status {
	return x.c.XAdd(c, &redis.XAddArgs{Stream: key, ID: id, Values: values})
}

func (x commands) XDel(c ctx, key string, ids ...string) number {
	return x.c.XDel(c, key, ids...)
}

func (x commands) XInfoStream(c ctx, key string) (redisconn.Stream, error) {
	s, err := x.c.XInfoStream(c, key).Result()
	if err != nil {
		return redisconn.Stream{}, err
	}
	return redisconn.Stream{Length: s.Length, Added: s.EntriesAdded, First: entry(s.FirstEntry)}, nil
}
func (x commands) XLen(c ctx, key string) number { return x.c.XLen(c, key) }
func (x commands) XRange(c ctx, key, start, stop string) stream {
	return entries{x.c.XRange(c, key, start, stop)}
}

func (x commands) XRangeN(c ctx, key, start, stop string, count int64) stream {
	return entries{x.c.XRangeN(c, key, start, stop, count)}
}

func (x commands) XRevRangeN(c ctx, key, start, stop string, count int64) stream {
	return entries{x.c.XRevRangeN(c, key, start, stop, count)}
}

func (x commands) XTrimMaxLenApprox(c ctx, key string, maxLen, limit int64) number {
	return x.c.XTrimMaxLenApprox(c, key, maxLen, limit)
}

func (x commands) ConfigGet(c ctx, name string) fields { return x.c.ConfigGet(c, name) }
func (x commands) DBSize(c ctx) number                 { return x.c.DBSize(c) }
func (x commands) Do(c ctx, args ...any) reply         { return x.c.Do(c, args...) }
func (x commands) Info(c ctx, sections ...string) str  { return x.c.Info(c, sections...) }
func (x commands) Ping(c ctx) status                   { return x.c.Ping(c) }
func (x commands) Publish(c ctx, channel string, message any) number {
	return x.c.Publish(c, channel, message)
}
func (x commands) Time(c ctx) redisconn.Cmd[time.Time] { return x.c.Time(c) }
