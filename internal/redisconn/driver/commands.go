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

func (x commands) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) redisconn.Reply {
	return x.c.EvalSha(ctx, sha1, keys, args...)
}

func (x commands) Eval(ctx context.Context, script string, keys []string, args ...any) redisconn.Reply {
	return x.c.Eval(ctx, script, keys, args...)
}

func (x commands) Del(ctx context.Context, keys ...string) redisconn.Cmd[int64] {
	return x.c.Del(ctx, keys...)
}

func (x commands) Exists(ctx context.Context, keys ...string) redisconn.Cmd[int64] {
	return x.c.Exists(ctx, keys...)
}

func (x commands) Expire(ctx context.Context, key string, life time.Duration) redisconn.Cmd[bool] {
	return x.c.Expire(ctx, key, life)
}

func (x commands) MemoryUsage(ctx context.Context, key string, samples ...int) redisconn.Cmd[int64] {
	return x.c.MemoryUsage(ctx, key, samples...)
}

func (x commands) PExpire(ctx context.Context, key string, life time.Duration) redisconn.Cmd[bool] {
	return x.c.PExpire(ctx, key, life)
}

func (x commands) PTTL(ctx context.Context, key string) redisconn.Cmd[time.Duration] {
	return x.c.PTTL(ctx, key)
}

func (x commands) Scan(ctx context.Context, cursor uint64, match string, count int64) redisconn.Scan {
	return x.c.Scan(ctx, cursor, match, count)
}

func (x commands) Unlink(ctx context.Context, keys ...string) redisconn.Cmd[int64] {
	return x.c.Unlink(ctx, keys...)
}

func (x commands) Get(ctx context.Context, key string) redisconn.Text { return x.c.Get(ctx, key) }

func (x commands) GetEx(ctx context.Context, key string, life time.Duration) redisconn.Text {
	return x.c.GetEx(ctx, key, life)
}

func (x commands) MGet(ctx context.Context, keys ...string) redisconn.Cmd[[]any] {
	return x.c.MGet(ctx, keys...)
}

func (x commands) Set(ctx context.Context, key string, value any, life time.Duration) redisconn.Cmd[string] {
	return x.c.Set(ctx, key, value, life)
}

func (x commands) SetNX(ctx context.Context, key string, value any, life time.Duration) redisconn.Cmd[bool] {
	return x.c.SetNX(ctx, key, value, life)
}

func (x commands) SetXX(ctx context.Context, key string, value any, life time.Duration) redisconn.Cmd[bool] {
	return x.c.SetXX(ctx, key, value, life)
}

func (x commands) HDel(ctx context.Context, key string, fields ...string) redisconn.Cmd[int64] {
	return x.c.HDel(ctx, key, fields...)
}

func (x commands) HExists(ctx context.Context, key, field string) redisconn.Cmd[bool] {
	return x.c.HExists(ctx, key, field)
}

func (x commands) HGet(ctx context.Context, key, field string) redisconn.Text {
	return x.c.HGet(ctx, key, field)
}

func (x commands) HGetAll(ctx context.Context, key string) redisconn.Cmd[map[string]string] {
	return x.c.HGetAll(ctx, key)
}

func (x commands) HKeys(ctx context.Context, key string) redisconn.Cmd[[]string] {
	return x.c.HKeys(ctx, key)
}

func (x commands) HLen(ctx context.Context, key string) redisconn.Cmd[int64] {
	return x.c.HLen(ctx, key)
}

func (x commands) HMGet(ctx context.Context, key string, fields ...string) redisconn.Cmd[[]any] {
	return x.c.HMGet(ctx, key, fields...)
}

func (x commands) HScan(ctx context.Context, key string, cursor uint64, match string, count int64) redisconn.Scan {
	return x.c.HScan(ctx, key, cursor, match, count)
}

func (x commands) HSet(ctx context.Context, key string, values ...any) redisconn.Cmd[int64] {
	return x.c.HSet(ctx, key, values...)
}

func (x commands) HSetNX(ctx context.Context, key, field string, value any) redisconn.Cmd[bool] {
	return x.c.HSetNX(ctx, key, field, value)
}

func (x commands) LRange(ctx context.Context, key string, start, stop int64) redisconn.Cmd[[]string] {
	return x.c.LRange(ctx, key, start, stop)
}

func (x commands) SAdd(ctx context.Context, key string, members ...any) redisconn.Cmd[int64] {
	return x.c.SAdd(ctx, key, members...)
}

func (x commands) SIsMember(ctx context.Context, key string, member any) redisconn.Cmd[bool] {
	return x.c.SIsMember(ctx, key, member)
}

func (x commands) SMembers(ctx context.Context, key string) redisconn.Cmd[[]string] {
	return x.c.SMembers(ctx, key)
}

func (x commands) SRem(ctx context.Context, key string, members ...any) redisconn.Cmd[int64] {
	return x.c.SRem(ctx, key, members...)
}

func (x commands) ZAdd(ctx context.Context, key string, list ...redisconn.Z) redisconn.Cmd[int64] {
	return x.c.ZAdd(ctx, key, members(list)...)
}

func (x commands) ZAddGT(ctx context.Context, key string, list ...redisconn.Z) redisconn.Cmd[int64] {
	return x.c.ZAddGT(ctx, key, members(list)...)
}

func (x commands) ZAddNX(ctx context.Context, key string, list ...redisconn.Z) redisconn.Cmd[int64] {
	return x.c.ZAddNX(ctx, key, members(list)...)
}

func (x commands) ZAddXX(ctx context.Context, key string, list ...redisconn.Z) redisconn.Cmd[int64] {
	return x.c.ZAddXX(ctx, key, members(list)...)
}

func (x commands) ZCard(ctx context.Context, key string) redisconn.Cmd[int64] {
	return x.c.ZCard(ctx, key)
}

func (x commands) ZCount(ctx context.Context, key, min, max string) redisconn.Cmd[int64] {
	return x.c.ZCount(ctx, key, min, max)
}

func (x commands) ZRange(ctx context.Context, key string, start, stop int64) redisconn.Cmd[[]string] {
	return x.c.ZRange(ctx, key, start, stop)
}

func (x commands) ZRangeByLex(ctx context.Context, key string, b redisconn.Between) redisconn.Cmd[[]string] {
	return x.c.ZRangeByLex(ctx, key, between(b))
}

func (x commands) ZRangeByScore(ctx context.Context, key string, b redisconn.Between) redisconn.Cmd[[]string] {
	return x.c.ZRangeByScore(ctx, key, between(b))
}

func (x commands) ZRangeByScoreWithScores(ctx context.Context, key string, b redisconn.Between) redisconn.Cmd[[]redisconn.Z] {
	return zs{x.c.ZRangeByScoreWithScores(ctx, key, between(b))}
}

func (x commands) ZRangeWithScores(ctx context.Context, key string, start, stop int64) redisconn.Cmd[[]redisconn.Z] {
	return zs{x.c.ZRangeWithScores(ctx, key, start, stop)}
}

func (x commands) ZRank(ctx context.Context, key, member string) redisconn.Cmd[int64] {
	return x.c.ZRank(ctx, key, member)
}

func (x commands) ZRem(ctx context.Context, key string, members ...any) redisconn.Cmd[int64] {
	return x.c.ZRem(ctx, key, members...)
}

func (x commands) ZRemRangeByRank(ctx context.Context, key string, start, stop int64) redisconn.Cmd[int64] {
	return x.c.ZRemRangeByRank(ctx, key, start, stop)
}

func (x commands) ZRemRangeByScore(ctx context.Context, key, min, max string) redisconn.Cmd[int64] {
	return x.c.ZRemRangeByScore(ctx, key, min, max)
}

func (x commands) ZRevRange(ctx context.Context, key string, start, stop int64) redisconn.Cmd[[]string] {
	return x.c.ZRevRange(ctx, key, start, stop)
}

func (x commands) ZRevRangeWithScores(ctx context.Context, key string, start, stop int64) redisconn.Cmd[[]redisconn.Z] {
	return zs{x.c.ZRevRangeWithScores(ctx, key, start, stop)}
}

func (x commands) ZRevRank(ctx context.Context, key, member string) redisconn.Cmd[int64] {
	return x.c.ZRevRank(ctx, key, member)
}

func (x commands) ZScan(ctx context.Context, key string, cursor uint64, match string, count int64) redisconn.Scan {
	return x.c.ZScan(ctx, key, cursor, match, count)
}

func (x commands) ZScore(ctx context.Context, key, member string) redisconn.Cmd[float64] {
	return x.c.ZScore(ctx, key, member)
}

func (x commands) XAdd(ctx context.Context, key, id string, values any) redisconn.Cmd[string] {
	return x.c.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: id, Values: values})
}

func (x commands) XDel(ctx context.Context, key string, ids ...string) redisconn.Cmd[int64] {
	return x.c.XDel(ctx, key, ids...)
}

func (x commands) XInfoStream(ctx context.Context, key string) (redisconn.Stream, error) {
	s, err := x.c.XInfoStream(ctx, key).Result()
	if err != nil {
		return redisconn.Stream{}, err
	}
	return redisconn.Stream{Length: s.Length, Added: s.EntriesAdded, First: entry(s.FirstEntry)}, nil
}

func (x commands) XLen(ctx context.Context, key string) redisconn.Cmd[int64] {
	return x.c.XLen(ctx, key)
}

func (x commands) XRange(ctx context.Context, key, start, stop string) redisconn.Cmd[[]redisconn.Entry] {
	return entries{x.c.XRange(ctx, key, start, stop)}
}

func (x commands) XRangeN(ctx context.Context, key, start, stop string, count int64) redisconn.Cmd[[]redisconn.Entry] {
	return entries{x.c.XRangeN(ctx, key, start, stop, count)}
}

func (x commands) XRevRangeN(ctx context.Context, key, start, stop string, count int64) redisconn.Cmd[[]redisconn.Entry] {
	return entries{x.c.XRevRangeN(ctx, key, start, stop, count)}
}

func (x commands) XTrimMaxLenApprox(ctx context.Context, key string, maxLen, limit int64) redisconn.Cmd[int64] {
	return x.c.XTrimMaxLenApprox(ctx, key, maxLen, limit)
}

func (x commands) ConfigGet(ctx context.Context, name string) redisconn.Cmd[map[string]string] {
	return x.c.ConfigGet(ctx, name)
}

func (x commands) DBSize(ctx context.Context) redisconn.Cmd[int64]     { return x.c.DBSize(ctx) }

func (x commands) Do(ctx context.Context, args ...any) redisconn.Reply { return x.c.Do(ctx, args...) }

func (x commands) Info(ctx context.Context, sections ...string) redisconn.Text {
	return x.c.Info(ctx, sections...)
}

func (x commands) Ping(ctx context.Context) redisconn.Cmd[string] { return x.c.Ping(ctx) }

func (x commands) Publish(ctx context.Context, channel string, message any) redisconn.Cmd[int64] {
	return x.c.Publish(ctx, channel, message)
}

func (x commands) Time(ctx context.Context) redisconn.Cmd[time.Time] { return x.c.Time(ctx) }
