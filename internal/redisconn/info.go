package redisconn

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// report is what one server said about itself. The zero report is that of a server that does
// not answer.
type report struct {
	up   bool
	ping time.Duration // 0 if unknown
	info facts
}

// facts are the fields of INFO by name, and the titles of its sections. Managed servers hide
// some of them.
type facts map[string]string

// Limits of one reading. Finding the servers of a cluster and asking them have a timeout each,
// so that one hanging server does not make the others look unreachable.
const (
	askTimeout = time.Second
	mostNodes  = 100 // with metrics, in order of their addresses
)

// reports asks the server, or every primary of a cluster. known are the servers of the last
// reading, which count as unreachable if the cluster's nodes cannot be listed.
func reports(ctx context.Context, rdb DB, known []string) map[string]report {
	var mu sync.Mutex
	out := map[string]report{}
	find, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := rdb.EachPrimary(find, func(_ context.Context, node DB) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		r := reportOf(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		out[node.Name()] = r
		return nil
	})
	if err != nil {
		for _, name := range known {
			out[name] = report{}
		}
	}
	if len(out) == 0 {
		return map[string]report{"unknown": {}}
	}
	names := slices.Sorted(maps.Keys(out))
	for _, name := range names[min(len(names), mostNodes):] { // every node has its own series
		delete(out, name)
	}
	return out
}

// reportOf asks one server. PING is measured last, on an open connection.
func reportOf(ctx context.Context, c DB) report {
	pipe := c.Pipeline()
	info, slow := pipe.Info(ctx), pipe.Do(ctx, "slowlog", "len")
	_ = pipe.Exec(ctx) // a server that refuses one of them may answer the other
	asked := time.Now()
	err := c.Ping(ctx).Err()
	took := time.Since(asked)
	if strings.HasPrefix(replied(err), "MISCONF") { // a full disk: it answers reads
		err, took = nil, 0
	}
	if err != nil {
		return report{}
	}
	r := report{up: true, ping: took, info: parseFacts(info.Val())}
	if n, err := slow.Int64(); err == nil {
		r.info["slowlog"] = strconv.FormatInt(n, 10)
	}
	return r
}

func parseFacts(text string) facts {
	f := facts{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		f[name] = value
	}
	return f
}

// number returns a field's number; false if the server hides it.
func (f facts) number(name string) (float64, bool) {
	n, err := strconv.ParseFloat(f[name], 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// is returns 1 if a field has the first value, 0 if it has the other.
func (f facts) is(name, one, zero string) (float64, bool) {
	if f[name] == one {
		return 1, true
	}
	return 0, f[name] == zero
}

// ok returns 1 if a field is "ok", 0 if it is "err".
func (f facts) ok(name string) (float64, bool) { return f.is(name, "ok", "err") }

// aof reads a field that means something only with an append-only file.
func (f facts) aof(read func(string) (float64, bool), name string) (float64, bool) {
	if f["aof_enabled"] == "0" {
		return 0, false
	}
	return read(name)
}

// primary returns 1 for a primary, 0 for a replica.
func (f facts) primary() (float64, bool) { return f.is("role", "master", "slave") }

// keys sums up a number of all databases. Empty databases are not listed.
func (f facts) keys(name string) (float64, bool) {
	if _, listed := f["# Keyspace"]; !listed {
		return 0, false
	}
	sum := 0.0
	for field, value := range f {
		if _, err := strconv.Atoi(strings.TrimPrefix(field, "db")); err != nil {
			continue
		}
		n, _ := part(value, name)
		sum += n
	}
	return sum, true
}

// replicaLag returns the largest lag of a replica that is online, in bytes and in seconds
// since its last acknowledgment; false without one.
func (f facts) replicaLag() (bytes, seconds float64, ok bool) {
	offset, known := f.number("master_repl_offset")
	for i := 0; known; i++ {
		line, listed := f["slave"+strconv.Itoa(i)]
		if !listed {
			break
		}
		at, found := part(line, "offset")
		if !found || !strings.Contains(line, "state=online") {
			continue
		}
		late, _ := part(line, "lag")
		bytes, seconds, ok = max(bytes, offset-at), max(seconds, late), true
	}
	return bytes, seconds, ok
}

// part returns a number of a field such as "keys=1,expires=0".
func part(value, name string) (float64, bool) {
	for pair := range strings.SplitSeq(value, ",") {
		if key, text, _ := strings.Cut(pair, "="); key == name {
			n, err := strconv.ParseFloat(text, 64)
			return n, err == nil
		}
	}
	return 0, false
}
