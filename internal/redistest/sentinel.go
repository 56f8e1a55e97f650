package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redisconn/driver"
)

const masterName = "llmguard"

// StartSentinel runs a primary, its replicas and three sentinels, two of which must agree that
// it is dead, after 1 s of silence. Replicas follow the primary over the address that via
// returns for its own, such as that of a faulty network. It returns when the sentinels know
// each other and the replicas.
func StartSentinel(tb testing.TB, replicas int, via func(addr string) string, opts ...Option) *Group {
	tb.Helper()
	g := &Group{tb: tb, mode: driver.Sentinel}
	opts = append([]Option{WithArgs("--repl-diskless-sync-delay", "0")}, opts...)
	primary := Start(tb, opts...)
	g.Nodes = append(g.Nodes, primary)
	for range replicas {
		host, port, _ := net.SplitHostPort(via(primary.Addr))
		g.Nodes = append(g.Nodes, Start(tb, append(opts, WithArgs("--replicaof", host+" "+port))...))
	}
	host, port, _ := net.SplitHostPort(primary.Addr)
	for range 3 {
		g.Sentinels = append(g.Sentinels, Start(tb, asSentinel(host, port)))
	}
	g.wait("the sentinels to know each other and the replicas", func() bool {
		for _, s := range g.Sentinels {
			facts := g.text(s, "info", "sentinel")
			if !strings.Contains(facts, fmt.Sprintf("status=ok,address=%s,slaves=%d,sentinels=3", primary.Addr, replicas)) ||
				strings.Count(g.text(s, "sentinel", "replicas", masterName), "master-link-status ok") != replicas &&
					strings.Count(g.text(s, "sentinel", "replicas", masterName), "master-link-status:ok") != replicas {
				return false
			}
		}
		return true
	})
	return g
}

// asSentinel makes a server a sentinel. A replica that follows the primary over another address
// seems to follow another primary; sentinels tolerate that for failover-timeout.
func asSentinel(host, port string) Option {
	return func(s *Server) {
		s.tb.Helper()
		_, own, _ := net.SplitHostPort(s.Addr)
		text := fmt.Sprintf(`port %s
bind 127.0.0.1
dir %s
logfile %s
sentinel monitor %[4]s %s %s 2
sentinel down-after-milliseconds %[4]s 1000
sentinel failover-timeout %[4]s 20000
`, own, s.dir, filepath.Join(s.dir, "redis.log"), masterName, host, port)
		file := filepath.Join(s.dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			s.tb.Fatal(err)
		}
		s.args = []string{file, "--sentinel"}
	}
}

// Primary returns the node that the sentinels report as the primary.
func (g *Group) Primary() *Server {
	g.tb.Helper()
	for _, s := range g.Sentinels {
		out, err := s.direct().Do(context.Background(), "sentinel", "get-master-addr-by-name", masterName).StringSlice()
		if err != nil || len(out) != 2 {
			continue
		}
		for _, n := range g.Nodes {
			if n.Addr == net.JoinHostPort(out[0], out[1]) {
				return n
			}
		}
	}
	g.tb.Fatal("the sentinels know no primary")
	return nil
}

// Follows returns the address at which a replica reaches its primary.
func (g *Group) Follows(replica *Server) string {
	var host, port string
	for line := range strings.Lines(g.text(replica, "info", "replication")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "master_host":
			host = value
		case "master_port":
			port = value
		}
	}
	return net.JoinHostPort(host, port)
}
