package redisconn_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

// replicated starts a primary and its replica, both with an append-only file that is synced on
// every write.
func replicated(t *testing.T) (primary, replica *redistest.Server) {
	t.Helper()
	aof := redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
	primary = redistest.Start(t, aof)
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica = redistest.Start(t, aof, redistest.WithArgs("--replicaof", host+" "+port))
	for end := time.Now().Add(time.Minute); primary.Client().Wait(t.Context(), 1, time.Second).Val() < 1; {
		if time.Now().After(end) {
			t.Fatal("the replica does not follow")
		}
	}
	return primary, replica
}

// TestAcknowledged: a write that no replica has is an error, and so is repeating it without a
// further write, until a replica has it. Scripts that need no acknowledgment are not affected.
func TestAcknowledged(t *testing.T) {
	primary, replica := replicated(t)
	once := redisconn.NewScript("return redis.call('SET', KEYS[1], ARGV[1], 'NX') and 1 or 0")
	for _, aof := range []bool{false, true} {
		rdb := driver.Open(driver.Single, driver.Options(primary.Addr))
		t.Cleanup(func() { _ = rdb.Close() })
		if v := rdb.InfoMap(t.Context(), "server").Item("Server", "redis_version"); aof && v < "7.2" {
			t.Skipf("redis %s has no WAITAOF", v)
		}
		line := redisconn.Pipelined(redistest.DB(rdb))
		safe := line.Acknowledged(10*time.Second, aof)
		if n, err := once.Run(t.Context(), safe, []string{"a" + time.Now().String()}, "1").Int(); n != 1 || err != nil {
			t.Fatalf("aof %v: %d, %v", aof, n, err)
		}
		if err := replica.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		hasty := redisconn.Pipelined(redistest.DB(rdb))
		unsafe, key := hasty.Acknowledged(50*time.Millisecond, aof), "b"+time.Now().String()
		for range 2 {
			if err := once.Run(t.Context(), unsafe, []string{key}, "1").Err(); err == nil {
				t.Errorf("aof %v: no replica runs, and one acknowledged", aof)
			}
		}
		batch := unsafe.Batch()
		cmd := add(t, batch, "evalsha", once.Hash(), 1, key, "1")
		if _ = batch.Exec(t.Context()); cmd.Err() == nil {
			t.Errorf("aof %v: batch without an error", aof)
		}
		if n, err := once.Run(t.Context(), hasty, []string{key}, "1").Int(); n != 0 || err != nil {
			t.Errorf("aof %v: what was written is %d, %v", aof, n, err)
		}
		if err := replica.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if n, err := once.Run(t.Context(), safe, []string{key}, "1").Int(); n != 0 || err != nil {
			t.Errorf("aof %v: repeated %d, %v", aof, n, err)
		}
		if replica.Client().Exists(t.Context(), key).Val() != 1 {
			t.Errorf("aof %v: the replica has not what it acknowledged", aof)
		}
	}
}
