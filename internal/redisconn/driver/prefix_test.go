package driver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

const prefix = "staging:"

func openPrefixed(t *testing.T, s *redistest.Server) redis.UniversalClient {
	t.Helper()
	rdb := driver.OpenPrefixed(driver.Single, driver.Options(s.Addr), prefix)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// TestPrefixOfKeys checks keys of commands, pipelines, transactions and scripts, and that
// neither arguments nor replies show the prefix.
func TestPrefixOfKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb, ctx := openPrefixed(t, s), t.Context()
	if err := rdb.Set(ctx, "lg:{a}:one", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	pipe := rdb.TxPipeline()
	pipe.HSet(ctx, "lg:{a}:two", "lg:field", "lg:value")
	pipe.ZAdd(ctx, "lg:{a}:three", redis.Z{Member: "lg:member"})
	got := pipe.Get(ctx, "lg:{a}:one")
	if _, err := pipe.Exec(ctx); err != nil || got.Val() != "1" || got.Args()[1] != "lg:{a}:one" {
		t.Errorf("got %v, arguments %v, %v; want 1, those of before and no error", got.Val(), got.Args(), err)
	}
	script := redis.NewScript(`redis.call('SET', KEYS[2], ARGV[1]); return KEYS[1]`)
	key := script.Run(ctx, rdb, []string{"lg:{a}:one", "lg:{a}:four"}, "asynq:{untouched}")
	if key.Val() != prefix+"lg:{a}:one" || rdb.Get(ctx, "lg:{a}:four").Val() != "asynq:{untouched}" {
		t.Errorf("got %v, %v, want a script with two keys and an argument without prefix", key.Val(), key.Err())
	}
	asynq := redis.NewScript(`redis.call('SET', ARGV[1] .. 'id', ARGV[2]); return 1`)
	if err := asynq.Run(ctx, rdb, []string{"asynq:{q}:pending"}, "asynq:{q}:t:", "asynq:value").Err(); err != nil {
		t.Error(err)
	}
	if n := rdb.Del(ctx, "lg:{a}:four", "lg:{a}:none").Val(); n != 1 {
		t.Errorf("deleted %d, want 1", n)
	}
	keys, err := s.Client().Keys(ctx, "*").Result()
	slices.Sort(keys)
	want := []string{"staging:asynq:{q}:t:id", "staging:lg:{a}:one", "staging:lg:{a}:three", "staging:lg:{a}:two"}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("got keys %q, %v, want %q", keys, err, want)
	}
}

// TestPrefixOfScan: SCAN returns only keys with the prefix, and returns them without it.
func TestPrefixOfScan(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	other := s.Client()
	for _, key := range []string{"lg:{a}:x", "eu:lg:{a}:x", prefix + "lg:{a}:x", prefix + "lg:{b}:x"} {
		if err := other.Set(ctx, key, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rdb := openPrefixed(t, s)
	keys, _, err := rdb.Scan(ctx, 0, "lg:{a}:*", 1000).Result()
	if err != nil || !slices.Equal(keys, []string{"lg:{a}:x"}) {
		t.Errorf("got %q, %v, want lg:{a}:x", keys, err)
	}
	if err := rdb.Scan(ctx, 0, "", 10).Err(); err == nil {
		t.Error("got no error for SCAN without a pattern, which finds keys of others")
	}
}

// TestPrefixOfChannels: messages pass between clients with one prefix only.
func TestPrefixOfChannels(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb, ctx := openPrefixed(t, s), t.Context()
	sub := driver.Subscribe(ctx, rdb, "lg:work")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if n := s.Client().Publish(ctx, "lg:work", "of another").Val(); n != 0 {
		t.Errorf("a message without the prefix has %d receivers, want 0", n)
	}
	if err := rdb.Publish(ctx, "lg:work", "ours").Err(); err != nil {
		t.Fatal(err)
	}
	m, err := sub.ReceiveMessage(ctx)
	if err != nil || m.Payload != "ours" || m.Channel != prefix+"lg:work" {
		t.Errorf("got %v, %v, want our message", m, err)
	}
	plain := driver.Open(driver.Single, driver.Options(s.Addr))
	defer plain.Close()
	if p, none := driver.PrefixOf(rdb), driver.PrefixOf(plain); p != prefix || none != "" {
		t.Errorf("got prefixes %q and %q, want %q and none", p, none, prefix)
	}
}

// TestPrefixUnlisted: a command whose keys are unknown is not sent, nor is its pipeline.
func TestPrefixUnlisted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb, ctx := openPrefixed(t, s), t.Context()
	if err := rdb.SetBit(ctx, "lg:bits", 1, 1).Err(); err == nil || !strings.Contains(err.Error(), "setbit") {
		t.Errorf("got %v, want an error that names setbit", err)
	}
	pipe := rdb.Pipeline()
	set := pipe.Set(ctx, "lg:a", 1, 0)
	pipe.SetBit(ctx, "lg:bits", 1, 1)
	if _, err := pipe.Exec(ctx); err == nil || set.Err() == nil {
		t.Errorf("got %v and %v, want errors of the pipeline and its commands", err, set.Err())
	}
	if n := s.Client().DBSize(ctx).Val(); n != 0 {
		t.Errorf("got %d keys, want 0", n)
	}
}

// TestPrefixOnCluster: commands reach their node by the whole key, and so do those that are sent
// to one node.
func TestPrefixOnCluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	var addrs []string
	for _, n := range group.Nodes {
		addrs = append(addrs, n.Addr)
	}
	rdb := driver.OpenPrefixed(driver.Cluster, driver.Options(addrs...), prefix)
	defer rdb.Close()
	ctx := t.Context()
	names := []string{"lg:epoch", "lg:orgs", "lg:seen", "lg:{a}:x", "lg:{b}:x", "lg:{c}:x"}
	pipe := rdb.Pipeline()
	for _, name := range names {
		if err := rdb.Set(ctx, name, 1, 0).Err(); err != nil {
			t.Error(err)
		}
		pipe.Incr(ctx, name)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Error(err)
	}
	var mu sync.Mutex
	var all []string
	err := rdb.(*redis.ClusterClient).ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		keys, _, err := c.Scan(ctx, 0, "lg:*", 1000).Result()
		for _, key := range keys {
			err = errors.Join(err, c.Get(ctx, key).Err())
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		return err
	})
	slices.Sort(all)
	if err != nil || !slices.Equal(all, names) {
		t.Errorf("got keys %q, %v, want %q", all, err, names)
	}
	for _, n := range group.Nodes {
		stats := n.Client().Info(ctx, "errorstats").Val()
		if strings.Contains(stats, "errorstat_MOVED") {
			t.Errorf("node %s has redirected commands: %s", n.Addr, stats)
		}
	}
}

// TestKeysOfCommands compares the list of commands with what Redis says about them.
func TestKeysOfCommands(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	commands, err := rdb.Command(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for name, c := range commands {
		first, last, step, ok := driver.KeysOf(name)
		if !ok || name == "publish" { // whose channel counts as a key here
			continue
		}
		listed++
		if first != int(c.FirstKeyPos) || last != int(c.LastKeyPos) || step != int(c.StepCount) {
			t.Errorf("%s has keys from %d to %d by %d, want %d to %d by %d", name, first, last, step, c.FirstKeyPos, c.LastKeyPos, c.StepCount)
		}
	}
	if listed < 100 {
		t.Errorf("got %d listed commands, want all of Redis", listed)
	}
}
