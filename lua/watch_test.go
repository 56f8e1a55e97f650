package lua_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// watch restricts every script to the keys that it declares: the script runs as a Redis user whose
// permissions are reset before each run.
type watch struct {
	t            *testing.T
	admin, probe *redis.Client
	files        map[string]string

	mu    sync.Mutex
	names map[string]string // of our scripts, by hash
	ran   map[string]bool
}

var header = regexp.MustCompile(`(?m)^-- ([a-z_]+): `)

// newWatch returns a client with watched scripts.
func newWatch(t *testing.T) (*watch, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	w := &watch{t: t, admin: server.Client(), files: sources(t), names: map[string]string{}, ran: map[string]bool{}}
	w.rights("on", "nopass", "&*", "+@all")
	w.probe = redis.NewClient(&redis.Options{Addr: server.Addr, Username: "probe", Password: "any"})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _, _ = rdb.Close(), w.probe.Close() })
	rdb.AddHook(w)
	return w, rdb
}

// rights sets the permissions of the user that runs scripts.
func (w *watch) rights(rules ...string) {
	args := []any{"ACL", "SETUSER", "probe"}
	for _, r := range rules {
		args = append(args, r)
	}
	if err := w.admin.Do(context.Background(), args...).Err(); err != nil {
		w.t.Errorf("rights %v: %v", rules, err)
	}
}

// DialHook implements redis.Hook.
func (w *watch) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (w *watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := w.script(cmd); name != "" {
			return w.run(ctx, name, cmd)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (w *watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ours := func(cmd redis.Cmder) bool { return w.script(cmd) != "" }
		if !slices.ContainsFunc(cmds, ours) {
			return next(ctx, cmds)
		}
		var first error
		for _, cmd := range cmds { // one by one, each with its own rights
			err := w.ProcessHook(w.admin.Process)(ctx, cmd)
			if first == nil {
				first = err
			}
		}
		return first
	}
}

// script returns the name of our script that a command runs, else "".
func (w *watch) script(cmd redis.Cmder) string {
	args := cmd.Args()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch strings.ToLower(fmt.Sprint(args[0])) {
	case "evalsha":
		return w.names[fmt.Sprint(args[1])]
	case "eval":
		return w.learn(fmt.Sprint(args[1]))
	case "script":
		w.learn(fmt.Sprint(args[len(args)-1]))
	}
	return ""
}

// learn returns the name of our script with this text, else "".
func (w *watch) learn(text string) string {
	name := ""
	for _, m := range header.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(w.files[m[1]], m[0]) {
			name = m[1]
		}
	}
	if name != "" {
		w.names[redis.NewScript(text).Hash()] = name
	}
	return name
}

// denied are the messages of Redis 6.2, 7.0 and 7.2 to 8.6 for a script that uses a key which its user may not use.
var denied = []string{"NOPERM", "can't access at least one of the keys", "No permissions to access a key"}

// run runs a script with permissions for its keys only.
func (w *watch) run(ctx context.Context, name string, cmd redis.Cmder) error {
	args := cmd.Args()
	var n int
	if _, err := fmt.Sscan(fmt.Sprint(args[2]), &n); err != nil {
		w.t.Errorf("%s: %v", name, err)
	}
	rules, tags := []string{"resetkeys"}, map[string]bool{}
	for _, k := range args[3 : 3+n] {
		key := fmt.Sprint(k)
		if text, ok := k.(*string); ok {
			key = *text
		}
		rules = append(rules, "~"+regexp.MustCompile(`[][*?\\]`).ReplaceAllString(key, `\$0`))
		_, tag, _ := strings.Cut(key, "{")
		tag, _, _ = strings.Cut(tag, "}")
		tags[tag] = true
	}
	if len(tags) > 1 {
		w.t.Errorf("%s declares keys of %d hash tags: %v", name, len(tags), args[3:3+n])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rights(rules...)
	err := w.probe.Process(ctx, cmd)
	if err != nil && slices.ContainsFunc(denied, func(text string) bool { return strings.Contains(err.Error(), text) }) {
		w.t.Errorf("%s touches a key that it does not declare: %v", name, err)
	}
	w.ran[name] = w.ran[name] || err == nil
	return err
}

// try fails the test on an error.
func (w *watch) try(errs ...error) {
	w.t.Helper()
	for _, err := range errs {
		if err != nil {
			w.t.Error(err)
		}
	}
}
