// Package redisconn is the door to Redis: the commands, scripts, pipelines and messages that this
// program uses, in types of its own. Only its package driver knows the client library, so that no
// other package waits for the library when it is compiled.
package redisconn

import (
	"context"
	"time"
)

// DB is a client of the servers that form one store. It is safe for concurrent use. A test that needs a
// fault embeds a DB and replaces a method.
type DB interface {
	Commands
	Scripts

	// Pipeline returns an empty pipeline, TxPipeline one that Redis executes as a transaction.
	Pipeline() Pipe
	TxPipeline() Pipe
	// Subscribe subscribes to channels. What is published while Redis is unreachable is lost.
	Subscribe(ctx context.Context, channels ...string) Subscription

	// Cluster reports whether the servers are a Redis Cluster.
	Cluster() bool
	// EachPrimary calls fn for every server that has keys, concurrently: the primaries of a cluster, or
	// the only server. It returns the first error.
	EachPrimary(ctx context.Context, fn func(context.Context, DB) error) error
	// PrimaryOf returns the server that has a key.
	PrimaryOf(ctx context.Context, key string) (DB, error)
	// Name returns the address of a single server, "primary" if Sentinel finds it, "" for a cluster.
	Name() string
	// Close ends all connections.
	Close() error
}

// Scripter runs scripts.
type Scripter interface {
	// EvalSha runs a script by its SHA-1, Eval by its text.
	EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) Reply
	Eval(ctx context.Context, script string, keys []string, args ...any) Reply
}

// Scripts is a Scripter that also sends commands which were made before.
type Scripts interface {
	Scripter
	// Command returns an EVAL or EVALSHA for Process. Its first key, by which a cluster's node is found,
	// is its fourth argument.
	Command(ctx context.Context, args ...any) Reply
	// Late returns a Command whose other arguments are built when it is sent.
	Late(ctx context.Context, b Builder, args ...any) Late
	// Process executes a command of Command or Late. Its error is that of the command. If ctx has ended,
	// the command must not be read, because it may be in progress.
	Process(ctx context.Context, cmd Reply) error
}

// Builder builds all arguments of a command; it may be called more than once, and always gives the same.
type Builder interface{ Args() []any }

// Cmd is a command. In a pipeline it has its reply after Exec.
type Cmd[T any] interface {
	// Result returns the reply, or why there is none. If a key, field or member does not exist, IsNil
	// reports true for the error.
	Result() (T, error)
	// Val returns the reply; the zero value if there is none.
	Val() T
	Err() error
}

// Text is a command with a string as its reply.
type Text interface {
	Cmd[string]
	Bytes() ([]byte, error)
	Int() (int, error)
	Int64() (int64, error)
}

// Reply is a script, or another command whose reply has any type.
type Reply interface {
	Cmd[any]
	Args() []any
	Text() (string, error)
	Int() (int, error)
	Int64() (int64, error)
	Int64Slice() ([]int64, error)
	StringSlice() ([]string, error)
	SetVal(val any)
	SetErr(err error)
}

// Late is a Reply with a Builder.
type Late interface {
	Reply
	Builder() Builder
}

// Scan is a command that returns a part of a large collection, and the cursor of the next part; 0 after the
// last one.
type Scan interface {
	Result() (page []string, cursor uint64, err error)
}

// Pipe collects commands that Exec sends together. It is not safe for concurrent use.
type Pipe interface {
	Commands
	Scripter

	// Add adds a command of Scripts.
	Add(ctx context.Context, cmd Reply)
	// Len returns the number of commands.
	Len() int
	// Exec sends the commands, and returns the first error of them. Each has its own error, too.
	Exec(ctx context.Context) error
}

// Subscription receives messages of channels until it is closed. It reconnects on its own.
type Subscription interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	// Each calls fn for each message, until Close.
	Each(fn func(Message))
	Close() error
}

// Message was published on a channel. Joined means that none was: the channel has been subscribed to, also
// after a reconnection.
type Message struct {
	Channel, Text string
	Joined        bool
}

// Z is a member of a sorted set.
type Z struct {
	Score  float64
	Member string
}

// Between bounds members of a sorted set by score or by text, as Redis writes bounds. Count limits their
// number; 0: all.
type Between struct {
	Min, Max string
	Count    int64
}

// Entry is an entry of a stream.
type Entry struct {
	ID     string
	Values map[string]any
}

// Stream describes a stream.
type Stream struct {
	Length, Added int64 // entries now, and ever
	First         Entry
}

// KeepTTL is a life for Set and SetXX: that of the former value.
const KeepTTL time.Duration = -1

// Commands are the commands of Redis that this program uses, with Redis's names and meanings. Lives are rounded
// to ms, those of Expire to seconds; for a value that is set, 0 is no end.
type Commands interface {
	Del(ctx context.Context, keys ...string) Cmd[int64]
	Exists(ctx context.Context, keys ...string) Cmd[int64]
	Expire(ctx context.Context, key string, life time.Duration) Cmd[bool]
	MemoryUsage(ctx context.Context, key string, samples ...int) Cmd[int64]
	PExpire(ctx context.Context, key string, life time.Duration) Cmd[bool]
	PTTL(ctx context.Context, key string) Cmd[time.Duration]
	Scan(ctx context.Context, cursor uint64, match string, count int64) Scan
	Unlink(ctx context.Context, keys ...string) Cmd[int64]

	Get(ctx context.Context, key string) Text
	GetEx(ctx context.Context, key string, life time.Duration) Text
	MGet(ctx context.Context, keys ...string) Cmd[[]any]
	Set(ctx context.Context, key string, value any, life time.Duration) Cmd[string]
	SetNX(ctx context.Context, key string, value any, life time.Duration) Cmd[bool]
	SetXX(ctx context.Context, key string, value any, life time.Duration) Cmd[bool]

	HDel(ctx context.Context, key string, fields ...string) Cmd[int64]
	HExists(ctx context.Context, key, field string) Cmd[bool]
	HGet(ctx context.Context, key, field string) Text
	HGetAll(ctx context.Context, key string) Cmd[map[string]string]
	HKeys(ctx context.Context, key string) Cmd[[]string]
	HLen(ctx context.Context, key string) Cmd[int64]
	HMGet(ctx context.Context, key string, fields ...string) Cmd[[]any]
	HScan(ctx context.Context, key string, cursor uint64, match string, count int64) Scan
	HSet(ctx context.Context, key string, values ...any) Cmd[int64]
	HSetNX(ctx context.Context, key, field string, value any) Cmd[bool]

	LRange(ctx context.Context, key string, start, stop int64) Cmd[[]string]

	SAdd(ctx context.Context, key string, members ...any) Cmd[int64]
	SIsMember(ctx context.Context, key string, member any) Cmd[bool]
	SMembers(ctx context.Context, key string) Cmd[[]string]
	SRem(ctx context.Context, key string, members ...any) Cmd[int64]

	ZAdd(ctx context.Context, key string, members ...Z) Cmd[int64]
	ZAddGT(ctx context.Context, key string, members ...Z) Cmd[int64]
	ZAddNX(ctx context.Context, key string, members ...Z) Cmd[int64]
	ZAddXX(ctx context.Context, key string, members ...Z) Cmd[int64]
	ZCard(ctx context.Context, key string) Cmd[int64]
	ZCount(ctx context.Context, key, min, max string) Cmd[int64]
	ZRange(ctx context.Context, key string, start, stop int64) Cmd[[]string]
	ZRangeByLex(ctx context.Context, key string, b Between) Cmd[[]string]
	ZRangeByScore(ctx context.Context, key string, b Between) Cmd[[]string]
	ZRangeByScoreWithScores(ctx context.Context, key string, b Between) Cmd[[]Z]
	ZRangeWithScores(ctx context.Context, key string, start, stop int64) Cmd[[]Z]
	ZRank(ctx context.Context, key, member string) Cmd[int64]
	ZRem(ctx context.Context, key string, members ...any) Cmd[int64]
	ZRemRangeByRank(ctx context.Context, key string, start, stop int64) Cmd[int64]
	ZRemRangeByScore(ctx context.Context, key, min, max string) Cmd[int64]
	ZRevRange(ctx context.Context, key string, start, stop int64) Cmd[[]string]
	ZRevRangeWithScores(ctx context.Context, key string, start, stop int64) Cmd[[]Z]
	ZRevRank(ctx context.Context, key, member string) Cmd[int64]
	ZScan(ctx context.Context, key string, cursor uint64, match string, count int64) Scan
	ZScore(ctx context.Context, key, member string) Cmd[float64]

	XAdd(ctx context.Context, key, id string, values any) Cmd[string]
	XDel(ctx context.Context, key string, ids ...string) Cmd[int64]
	XInfoStream(ctx context.Context, key string) (Stream, error)
	XLen(ctx context.Context, key string) Cmd[int64]
	XRange(ctx context.Context, key, start, stop string) Cmd[[]Entry]
	XRangeN(ctx context.Context, key, start, stop string, count int64) Cmd[[]Entry]
	XRevRangeN(ctx context.Context, key, start, stop string, count int64) Cmd[[]Entry]
	XTrimMaxLenApprox(ctx context.Context, key string, maxLen, limit int64) Cmd[int64]

	ConfigGet(ctx context.Context, name string) Cmd[map[string]string]
	DBSize(ctx context.Context) Cmd[int64]
	Do(ctx context.Context, args ...any) Reply
	Info(ctx context.Context, sections ...string) Text
	Ping(ctx context.Context) Cmd[string]
	Publish(ctx context.Context, channel string, message any) Cmd[int64]
	Time(ctx context.Context) Cmd[time.Time]
}
