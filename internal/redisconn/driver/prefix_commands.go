package driver

import (
	"fmt"
	"strconv"
	"strings"
)

// positions are the arguments of a command that are keys, channels or patterns of keys.
type positions struct {
	keys []int
	rest int // first argument of a script; 0: the command runs none
}

// span is where the keys of a command are, as in the reply of Redis to COMMAND: the first and
// the last argument and the distance between two. A negative last counts from the end. Commands
// with the zero span have no keys.
type span struct{ first, last, step int }

// keysOf lists the commands that may be sent with a prefix. TestKeysOfCommands compares it with
// what Redis says, TestCommandsAreListed with what this program sends. In Redis channels are not
// keys; here the one of PUBLISH is.
func keysOf(name string) (span, bool) {
	switch name {
	case "asking", "auth", "client", "cluster", "command", "config", "dbsize", "discard", "echo", "exec", "hello", "info",
		"latency", "multi", "ping", "readonly", "readwrite", "role", "script", "select", "slowlog", "time", "wait",
		"waitaof":
		return span{}, true
	case "append", "decr", "decrby", "expire", "expireat", "get", "getdel", "getex", "getrange", "hdel", "hexists",
		"hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hmset", "hscan", "hset", "hsetnx", "hstrlen", "hvals",
		"incr", "incrby", "lindex", "llen", "lpop", "lpush", "lrange", "lrem", "lset", "ltrim", "persist", "pexpire",
		"pexpireat", "psetex", "pttl", "publish", "rpop", "rpush", "sadd", "scard", "set", "setex", "setnx", "setrange",
		"sismember", "smembers", "smismember", "spop", "srandmember", "srem", "sscan", "strlen", "ttl", "type", "xack",
		"xadd", "xdel", "xlen", "xrange", "xrevrange", "xtrim", "zadd", "zcard", "zcount", "zincrby", "zlexcount",
		"zmscore", "zpopmax", "zpopmin", "zrange", "zrangebylex", "zrangebyscore", "zrank", "zrem", "zremrangebylex",
		"zremrangebyrank", "zremrangebyscore", "zrevrange", "zrevrangebyscore", "zrevrank", "zscan", "zscore":
		return span{1, 1, 1}, true
	case "del", "exists", "mget", "touch", "unlink":
		return span{1, -1, 1}, true
	case "lmove", "rename", "renamenx", "rpoplpush", "smove":
		return span{1, 2, 1}, true
	case "mset", "msetnx":
		return span{1, -1, 2}, true
	case "memory usage", "object encoding", "object freq", "object idletime", "xinfo stream":
		return span{2, 2, 1}, true
	}
	return span{}, false
}

// keyPositions finds the keys of a command.
func keyPositions(args []any) (positions, error) {
	name := word(args, 0)
	switch name {
	case "eval", "evalsha", "eval_ro", "evalsha_ro":
		return scriptKeys(args)
	case "scan":
		return scanPattern(args)
	case "memory", "object", "xinfo":
		name += " " + word(args, 1)
	}
	where, ok := keysOf(name)
	if !ok {
		return positions{}, errUnlisted
	}
	var at positions
	if where.first == 0 {
		return at, nil
	}
	last := where.last
	if last < 0 {
		last += len(args)
	}
	for i := where.first; i <= last && i < len(args); i += where.step {
		at.keys = append(at.keys, i)
	}
	return at, nil
}

// scriptKeys finds the keys of a script: it is called as EVALSHA hash number key... argument...
func scriptKeys(args []any) (positions, error) {
	n := 0
	if len(args) > 2 {
		var err error
		n, err = strconv.Atoi(fmt.Sprint(args[2]))
		if err != nil || n < 0 || n > len(args)-3 {
			return positions{}, fmt.Errorf("script with %v keys and %d arguments", args[2], len(args)-3)
		}
	}
	at := positions{keys: make([]int, n), rest: 3 + n}
	for i := range at.keys {
		at.keys[i] = 3 + i
	}
	return at, nil
}

// scanPattern finds the pattern of SCAN, without which it would find keys of other programs.
func scanPattern(args []any) (positions, error) {
	for i := 2; i+1 < len(args); i++ {
		if word(args, i) == "match" {
			return positions{keys: []int{i + 1}}, nil
		}
	}
	return positions{}, fmt.Errorf("SCAN without MATCH")
}

// word returns an argument in lower case, or "" if it is absent or not a string.
func word(args []any, i int) string {
	if i >= len(args) {
		return ""
	}
	s, _ := text(args[i])
	return strings.ToLower(s)
}
