package simulation

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed prelude.lua
var prelude string

// forever is BASE in prelude.lua, in milliseconds.
const forever = 3_000_000_000_000

// store is the Redis of a run: a real one with a virtual clock.
type store struct {
	rdb     *redis.Client // used by the main goroutine, the only one that waits for the network
	ahead   time.Duration // offset of the store's clock from the true one
	scripts map[string]*redis.Script
	life    int  // incremented by a restart or a failover
	full    bool // maxmemory is reached
	lag     time.Time
	swept   time.Time
}

func openStore(ctx context.Context, addr string) (*store, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: -1, MaxRetries: -1, PoolSize: 1})
	s := &store{rdb: rdb, scripts: map[string]*redis.Script{}}
	pipe := rdb.Pipeline()
	pipe.ConfigSet(ctx, "maxmemory", "0")
	pipe.FlushAll(ctx)
	pipe.ScriptFlush(ctx)
	_, err := pipe.Exec(ctx)
	return s, err
}

// now returns the time of the store's clock.
func (s *store) now() time.Time { return time.Now().Add(s.ahead) }

// run executes a command at the store's time.
func (s *store) run(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	switch name := strings.ToLower(fmt.Sprint(args[0])); name {
	case "evalsha", "eval":
		return s.script(ctx, cmd, name, args)
	case "pexpire":
		s.till(args, "pexpireat", fmt.Sprint(args[2])+"ms")
	case "expire":
		s.till(args, "pexpireat", fmt.Sprint(args[2])+"s")
	case "set":
		lasting(args, s.now())
	}
	err := s.rdb.Process(ctx, cmd)
	if text, ok := cmd.(*redis.StringCmd); ok && strings.EqualFold(fmt.Sprint(args[0]), "info") {
		text.SetVal(strings.ReplaceAll(text.Val(), "run_id:", fmt.Sprintf("run_id:%d-", s.life)))
	}
	return err
}

// till converts a relative expiry to an absolute one.
func (s *store) till(args []any, name, life string) {
	d, _ := time.ParseDuration(life)
	args[0], args[2] = name, forever+s.now().Add(d).UnixMilli()
}

// lasting does the same for SET with EX or PX.
func lasting(args []any, now time.Time) {
	for i := 3; i+1 < len(args); i++ {
		unit, _ := args[i].(string)
		switch strings.ToLower(unit) {
		case "px":
			d, _ := time.ParseDuration(fmt.Sprint(args[i+1]) + "ms")
			args[i], args[i+1] = "pxat", forever+now.Add(d).UnixMilli()
		case "ex":
			d, _ := time.ParseDuration(fmt.Sprint(args[i+1]) + "s")
			args[i], args[i+1] = "pxat", forever+now.Add(d).UnixMilli()
		}
	}
}

// script runs a script with the prelude, and adds the time that its caller omitted.
func (s *store) script(ctx context.Context, cmd redis.Cmder, name string, args []any) error {
	args = values(args)
	text := args[1].(string)
	id := text
	if name == "eval" {
		id = redis.NewScript(text).Hash()
		if s.scripts[id] == nil {
			s.scripts[id] = redis.NewScript(behind(text))
		}
	}
	known := s.scripts[id]
	if known == nil {
		cmd.SetErr(noScript{})
		return cmd.Err()
	}
	n := args[2].(int)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = args[3+i].(string)
	}
	argv := append([]any(nil), args[3+n:]...)
	if len(argv) > 0 && argv[0] == "" {
		argv[0] = fmt.Sprint(s.now().UnixMicro())
	}
	got := known.Run(ctx, s.rdb, keys, append(argv, s.now().UnixMilli())...)
	cmd.(interface{ SetVal(any) }).SetVal(got.Val()) // a script, or one of several requests
	cmd.SetErr(got.Err())
	return got.Err()
}

// behind prepends the prelude to a script; a line with flags stays first.
func behind(text string) string {
	flags, rest, found := strings.Cut(text, "\n")
	if found && strings.HasPrefix(flags, "#!") {
		return flags + "\n" + prelude + rest
	}
	return prelude + text
}

// noScript is Redis's reply to the hash of an unknown script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script." }
func (noScript) RedisError()   {}

var expireScript = redis.NewScript(`
local gone = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local at = redis.call('PEXPIRETIME', key)
  if at > 0 and at <= tonumber(ARGV[1]) then redis.call('DEL', key); gone = gone + 1 end
end
return gone`)

// expire deletes expired keys, at most once per virtual second.
func (s *store) expire(ctx context.Context) error {
	if d := s.now().Sub(s.swept); d > 0 && d < time.Second {
		return nil
	}
	s.swept = s.now()
	return expireScript.Run(ctx, s.rdb, nil, forever+s.now().UnixMilli()).Err()
}

// copyScript copies the store to the replica.
var copyScript = redis.NewScript(`
redis.call('SELECT', 1)
redis.call('FLUSHDB')
redis.call('SELECT', 0)
for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 1) end
return 1`)

// replicate updates the replica.
func (s *store) replicate(ctx context.Context) error {
	if s.full {
		return nil
	}
	s.lag = s.now()
	return copyScript.Run(ctx, s.rdb, nil).Err()
}

// failover promotes the replica: what came since its last update is lost.
func (s *store) failover(ctx context.Context) error {
	s.life++
	return s.rdb.Do(ctx, "swapdb", 0, 1).Err()
}

// flush empties the store, like a restart without persistence.
func (s *store) flush(ctx context.Context) error {
	s.life++
	return s.rdb.FlushDB(ctx).Err()
}

// fill sets whether the memory is full.
func (s *store) fill(ctx context.Context, full bool) error {
	s.full = full
	limit := "0"
	if full {
		limit = "1"
	}
	return s.rdb.ConfigSet(ctx, "maxmemory", limit).Err()
}
