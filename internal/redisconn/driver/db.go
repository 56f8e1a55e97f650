package driver

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// DB returns a client as the rest of the program knows it.
func DB(rdb redis.UniversalClient) redisconn.DB {
	return &db{commands{rdb}, rdb, prefixOf(rdb)}
}

// Client returns the client of a DB that this package made.
func Client(rdb redisconn.DB) redis.UniversalClient { return rdb.(*db).rdb }

// Cmd returns the command of a reply that a DB or NewReply made.
func Cmd(r redisconn.Reply) *redis.Cmd { return r.(*redis.Cmd) }

// NewReply returns a reply that no server made. Without a value it is Redis's nil.
func NewReply(ctx context.Context, val any) redisconn.Reply {
	cmd := redis.NewCmd(ctx)
	if val == nil {
		cmd.SetErr(redis.Nil)
	} else {
		cmd.SetVal(val)
	}
	return cmd
}

// db implements redisconn.DB.
type db struct {
	commands
	rdb    redis.UniversalClient
	prefix string
}

func (d *db) Process(ctx context.Context, cmd redisconn.Reply) error {
	return d.rdb.Process(ctx, cmd.(redis.Cmder))
}

func (d *db) Command(ctx context.Context, args ...any) redisconn.Reply {
	cmd := redis.NewCmd(ctx, args...)
	setKey(cmd, args)
	return cmd
}

// setKey tells where the first key of a script is, if it has any.
func setKey(cmd *redis.Cmd, args []any) {
	if len(args) > 3 && args[2] != 0 {
		cmd.SetFirstKeyPos(3)
	}
}

// late is a command whose arguments are built when it is sent. Its own are the first ones, which go-redis
// reads to find the node.
type late struct {
	redis.Cmd
	builder redisconn.Builder
}

// Args implements redis.Cmder.
func (l *late) Args() []any { return l.builder.Args() }

func (l *late) Builder() redisconn.Builder { return l.builder }

func (d *db) Late(ctx context.Context, b redisconn.Builder, args ...any) redisconn.Late {
	l := &late{*redis.NewCmd(ctx, args...), b}
	setKey(&l.Cmd, args)
	return l
}

func (d *db) Pipeline() redisconn.Pipe { return newPipe(d.rdb.Pipeline()) }

func (d *db) TxPipeline() redisconn.Pipe { return newPipe(d.rdb.TxPipeline()) }

func (d *db) Cluster() bool {
	_, cluster := d.rdb.(*redis.ClusterClient)
	return cluster
}

func (d *db) EachPrimary(ctx context.Context, fn func(context.Context, redisconn.DB) error) error {
	switch c := d.rdb.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return fn(ctx, DB(c)) })
	case *redis.Client:
		return fn(ctx, d)
	}
	return nil // each command of another client may go to another server
}

func (d *db) PrimaryOf(ctx context.Context, key string) (redisconn.DB, error) {
	cluster, ok := d.rdb.(*redis.ClusterClient)
	if !ok {
		return d, nil
	}
	c, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return DB(c), nil
}

func (d *db) Name() string {
	c, ok := d.rdb.(*redis.Client)
	if !ok {
		return ""
	}
	if addr := c.Options().Addr; addr != "FailoverClient" { // else the client does not know the address
		return addr
	}
	return "primary"
}

func (d *db) Close() error { return d.rdb.Close() }

// pipe implements redisconn.Pipe.
type pipe struct {
	commands
	pipe redis.Pipeliner
}

func newPipe(p redis.Pipeliner) *pipe { return &pipe{commands{p}, p} }

func (p *pipe) Add(ctx context.Context, cmd redisconn.Reply) {
	_ = p.pipe.Process(ctx, cmd.(redis.Cmder)) // only queues
}

func (p *pipe) Len() int { return p.pipe.Len() }

func (p *pipe) Exec(ctx context.Context) error {
	_, err := p.pipe.Exec(ctx)
	return err
}
