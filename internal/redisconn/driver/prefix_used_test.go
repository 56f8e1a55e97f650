package driver_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

// asynqUses are the methods that asynq v0.26 calls (internal/rdb), besides scripts.
const asynqUses = `ClusterInfo ClusterSlots Del Get HSet HVals Info LRange Ping Publish SAdd SIsMember SMembers SRem SetNX
	ZAdd ZAddXX ZRem ZRevRangeWithScores ZScore`

// usedMethods returns the methods of a Redis client that the program or asynq may call.
func usedMethods() []string {
	used := strings.Fields(asynqUses)
	commands := reflect.TypeFor[redisconn.Commands]()
	for i := range commands.NumMethod() {
		used = append(used, commands.Method(i).Name)
	}
	client := reflect.TypeFor[redis.Cmdable]()
	var out []string
	for i := range client.NumMethod() {
		if name := client.Method(i).Name; slices.Contains(used, name) {
			out = append(out, name)
		}
	}
	return out
}

// errNotSent is the reply to all commands of unsent.
var errNotSent = errors.New("not sent")

// unsent is a hook that sends nothing.
type unsent struct{ names *[]string }

func (u unsent) DialHook(next redis.DialHook) redis.DialHook { return next }

func (u unsent) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		*u.names = append(*u.names, cmd.FullName())
		return errNotSent
	}
}

func (u unsent) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errNotSent }
}

// TestCommandsAreListed: every command that the program or asynq sends is in the list of those
// whose keys are known. A command that is not would fail with redis.prefix.
func TestCommandsAreListed(t *testing.T) {
	t.Parallel()
	rdb := driver.OpenPrefixed(driver.Single, driver.Options("127.0.0.1:1"), prefix)
	defer rdb.Close()
	var names []string
	rdb.AddHook(unsent{&names}) // after the prefix
	methods := usedMethods()
	for _, name := range methods {
		method := reflect.ValueOf(rdb).MethodByName(name)
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		kind := method.Type()
		for i := 1; i < kind.NumIn(); i++ {
			switch in := kind.In(i); {
			case kind.IsVariadic() && i == kind.NumIn()-1:
			case in.Kind() == reflect.Pointer:
				args = append(args, reflect.New(in.Elem()))
			case in.Kind() == reflect.String:
				args = append(args, reflect.ValueOf("lg:*").Convert(in))
			default:
				args = append(args, reflect.Zero(in))
			}
		}
		reply, ok := method.Call(args)[0].Interface().(redis.Cmder)
		if ok && !errors.Is(reply.Err(), errNotSent) {
			t.Errorf("%s: got %v, want a command whose keys are known", name, reply.Err())
		}
	}
	if len(methods) < 50 || !slices.Contains(names, "hset") || !slices.Contains(names, "scan") {
		t.Errorf("got methods %q and commands %q, want all that are used", methods, names)
	}
}
