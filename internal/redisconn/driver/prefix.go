package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// asynqKeys begins all keys of asynq, without the prefix.
const asynqKeys = "asynq:"

// clientName is the name of connections in CLIENT LIST. The prefix follows it.
const clientName = "llmguard"

// prefixOf returns what precedes every key and channel of a client that OpenPrefixed has returned.
func prefixOf(rdb redis.UniversalClient) string {
	name := ""
	switch c := rdb.(type) {
	case *redis.Client:
		name = c.Options().ClientName
	case *redis.ClusterClient:
		name = c.Options().ClientName
	}
	if prefix, ok := strings.CutPrefix(name, clientName+"@"); ok {
		return prefix
	}
	return ""
}

// prefixHook adds the prefix to the keys of every command, and takes it from the keys that
// SCAN returns. While a command is on its way its arguments have the prefix; then they are as
// before, because callers may read or send them again. Commands that are not listed in
// keysOf get an error: otherwise their keys might have no prefix.
type prefixHook struct {
	prefix string
	// cluster is whether a command may pass two hooks: those of the cluster's client and of the
	// node's.
	cluster bool
}

// marked marks the context of a command that has the prefix.
type marked struct{}

func (h *prefixHook) marked(ctx context.Context) bool {
	return h.cluster && ctx.Value(marked{}) != nil
}

func (h *prefixHook) mark(ctx context.Context) context.Context {
	if !h.cluster {
		return ctx
	}
	return context.WithValue(ctx, marked{}, true)
}

// DialHook implements redis.Hook.
func (h *prefixHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *prefixHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.marked(ctx) {
			return next(ctx, cmd)
		}
		var before changes
		defer before.restore()
		named, err := h.add(cmd, &before)
		if err != nil {
			cmd.SetErr(err)
			return err
		}
		err = next(h.mark(ctx), named)
		h.take(cmd)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h *prefixHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.marked(ctx) {
			return next(ctx, cmds)
		}
		var before changes
		defer before.restore()
		named := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			var err error
			named[i], err = h.add(cmd, &before)
			if err == nil {
				continue
			}
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		err := next(h.mark(ctx), named)
		for _, cmd := range cmds {
			h.take(cmd)
		}
		return err
	}
}

// changes are the arguments that have been replaced.
type changes []change

type change struct {
	args []any
	at   int
	was  any
}

func (c *changes) restore() {
	for _, one := range *c {
		one.args[one.at] = one.was
	}
}

// errUnlisted is the error of a command whose keys are unknown.
var errUnlisted = errors.New("redis command is not listed in internal/redisconn/driver/prefix_commands.go, so " +
	"redis.prefix cannot be applied")

// built is a command whose Args makes new arguments in each call. Its own first key, by which a
// cluster's client finds the node, has no prefix, so it must have a hash tag.
type built struct {
	redis.Cmder
	args []any
}

// Args implements redis.Cmder.
func (b built) Args() []any { return b.args }

// add returns a command with the prefix in its keys.
func (h *prefixHook) add(cmd redis.Cmder, before *changes) (redis.Cmder, error) {
	args, again := cmd.Args(), cmd.Args()
	if len(args) > 0 && &args[0] != &again[0] {
		return built{cmd, args}, h.addTo(args, cmd, before)
	}
	return cmd, h.addTo(args, cmd, before)
}

func (h *prefixHook) addTo(args []any, cmd redis.Cmder, before *changes) error {
	at, err := keyPositions(args)
	if err != nil {
		return fmt.Errorf("%w: %s", err, cmd.FullName())
	}
	asynq := false
	for _, i := range at.keys {
		key, ok := text(args[i])
		if !ok {
			return fmt.Errorf("redis.prefix cannot be applied to a key of type %T: %s", args[i], cmd.FullName())
		}
		asynq = asynq || strings.HasPrefix(key, asynqKeys)
		h.replace(args, i, key, before)
	}
	if !asynq || at.rest == 0 {
		return nil
	}
	// Scripts of asynq make names of keys from arguments such as "asynq:{webhooks}:t:". Its
	// other arguments begin differently: ids, numbers, and messages in protobuf's format.
	for i := at.rest; i < len(args); i++ {
		if arg, ok := text(args[i]); ok && strings.HasPrefix(arg, asynqKeys+"{") {
			h.replace(args, i, arg, before)
		}
	}
	return nil
}

func (h *prefixHook) replace(args []any, i int, arg string, before *changes) {
	*before = append(*before, change{args, i, args[i]})
	args[i] = h.prefix + arg
}

// text returns an argument that is a string.
func text(arg any) (string, bool) {
	switch a := arg.(type) {
	case string:
		return a, true
	case *string:
		return *a, true
	}
	return "", false
}

// take removes the prefix from the reply of SCAN.
func (h *prefixHook) take(cmd redis.Cmder) {
	scan, ok := cmd.(*redis.ScanCmd)
	if !ok || cmd.Name() != "scan" || cmd.Err() != nil {
		return
	}
	keys, cursor := scan.Val()
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, h.prefix)
	}
	scan.SetVal(keys, cursor)
}
