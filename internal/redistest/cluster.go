package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

const allSlots = 16384

// Group is several servers that form one store: a cluster, or a primary with replicas and
// sentinels. Its methods are not safe for concurrent use.
type Group struct {
	Nodes     []*Server // primaries first
	Sentinels []*Server // none in a cluster

	tb   testing.TB
	mode driver.Mode
}

// StartCluster runs a Redis Cluster and waits until it serves. A node is considered dead after
// 2 s.
func StartCluster(tb testing.TB, masters, replicasEach int, opts ...Option) *Group {
	tb.Helper()
	g := &Group{tb: tb, mode: driver.Cluster}
	opts = append([]Option{WithArgs("--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
		"--repl-diskless-sync-delay", "0"), withBusPort}, opts...)
	for range masters * (1 + replicasEach) {
		g.Nodes = append(g.Nodes, Start(tb, opts...))
	}
	for i, n := range g.Nodes {
		g.do(n, "cluster", "set-config-epoch", i+1)
		if i < masters {
			args := []any{"cluster", "addslots"}
			for slot := i * allSlots / masters; slot < (i+1)*allSlots/masters; slot++ {
				args = append(args, slot)
			}
			g.do(n, args...)
		}
		for _, other := range g.Nodes[:i] { // gossip alone would take seconds
			host, port, _ := net.SplitHostPort(other.Addr)
			g.do(n, "cluster", "meet", host, port)
		}
	}
	g.wait("all nodes to know each other", func() bool {
		for _, n := range g.Nodes {
			if strings.Count(g.text(n, "cluster", "nodes"), "connected") != len(g.Nodes) {
				return false
			}
		}
		return true
	})
	for i, n := range g.Nodes[masters:] {
		g.do(n, "cluster", "replicate", g.ID(g.Nodes[i%masters]))
	}
	g.Healthy()
	return g
}

// withBusPort moves a server to a port for which the cluster bus port, 10000 above it, is
// valid.
func withBusPort(s *Server) {
	s.tb.Helper()
	for range 200 {
		port := 11000 + rand.IntN(19000)
		if !free(port) || !free(port+10000) {
			continue
		}
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s.args = append(s.args, "--port", strconv.Itoa(port))
		return
	}
	s.tb.Fatal("no two free ports 10000 apart")
}

// taken are the ports that servers of this process have used.
var taken sync.Map

// free reports whether a server may use a port. None is used twice, because its former server
// may be down only temporarily.
func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	_, had := taken.LoadOrStore(port, true)
	return !had
}

// Healthy waits until all living nodes see the complete cluster and every replica follows its
// primary.
func (g *Group) Healthy() {
	g.tb.Helper()
	g.wait("the cluster to be whole", func() bool {
		for _, n := range g.Nodes {
			if n.cmd == nil {
				continue
			}
			if !strings.Contains(g.text(n, "cluster", "info"), "cluster_state:ok") ||
				strings.Contains(g.text(n, "info", "replication"), "master_link_status:down") {
				return false
			}
		}
		return true
	})
}

// ID returns a cluster node's id.
func (g *Group) ID(n *Server) string {
	return g.text(n, "cluster", "myid")
}

// Owner returns the living node that serves the slot of a key.
func (g *Group) Owner(key string) *Server {
	g.tb.Helper()
	slot, _ := strconv.Atoi(g.text(g.living(), "cluster", "keyslot", key))
	for line := range strings.Lines(g.text(g.living(), "cluster", "nodes")) {
		f := strings.Fields(line)
		for _, span := range f[8:] {
			from, to, several := strings.Cut(span, "-")
			if !several {
				to = from
			}
			a, err1 := strconv.Atoi(from)
			b, err2 := strconv.Atoi(to)
			if err1 != nil || err2 != nil || slot < a || slot > b {
				continue
			}
			for _, n := range g.Nodes {
				if strings.HasPrefix(f[1], n.Addr+"@") {
					return n
				}
			}
		}
	}
	g.tb.Fatalf("no node owns the slot of %q", key)
	return nil
}

func (g *Group) living() *Server {
	for _, n := range g.Nodes {
		if n.cmd != nil {
			return n
		}
	}
	g.tb.Fatal("no node lives")
	return nil
}

// MoveSlot moves the slot of a key to another primary like an operator's tools: the slot is
// open in both while its keys move one by one, with a pause after each. It returns how many
// keys moved.
func (g *Group) MoveSlot(key string, to *Server, pause time.Duration) int {
	g.tb.Helper()
	from := g.Owner(key)
	slot := g.text(from, "cluster", "keyslot", key)
	g.do(to, "cluster", "setslot", slot, "importing", g.ID(from))
	g.do(from, "cluster", "setslot", slot, "migrating", g.ID(to))
	host, port, _ := net.SplitHostPort(to.Addr)
	moved := 0
	for end := time.Now().Add(Bound); ; {
		keys := g.do(from, "cluster", "getkeysinslot", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		if time.Now().After(end) {
			g.tb.Fatalf("slot %s still has keys after %d were moved", slot, moved)
		}
		g.do(from, "migrate", host, port, keys[0], 0, 5000)
		moved++
		time.Sleep(pause)
	}
	for _, n := range []*Server{to, from} {
		g.do(n, "cluster", "setslot", slot, "node", g.ID(to))
	}
	return moved
}

// Client returns a client with the program's own options, closed at the end of the test. Given
// addresses replace those of the group.
func (g *Group) Client(addrs ...string) redis.UniversalClient {
	list := g.Nodes
	if g.mode == driver.Sentinel {
		list = g.Sentinels
	}
	for _, n := range list {
		addrs = append(addrs, n.Addr)
	}
	o := driver.Options(addrs...)
	if g.mode == driver.Sentinel {
		o.MasterName = masterName
	}
	rdb := driver.Open(g.mode, o)
	g.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// do runs a command on one node.
func (g *Group) do(n *Server, args ...any) any {
	g.tb.Helper()
	out, err := n.direct().Do(context.Background(), args...).Result()
	if err != nil {
		g.tb.Fatalf("%s: %v: %v", n.Addr, args[:min(len(args), 4)], err)
	}
	return out
}

// text is do for replies that are one string; empty if the node does not reply.
func (g *Group) text(n *Server, args ...any) string {
	out, err := n.direct().Do(context.Background(), args...).Result()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(out))
}

func (g *Group) wait(what string, done func() bool) {
	g.tb.Helper()
	for range 1500 {
		if done() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	g.tb.Fatalf("waited 30 s for %s", what)
}
