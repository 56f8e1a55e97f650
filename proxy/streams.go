package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/llmguard/llmguard/internal/wire"
)

// streams bounds connections that last as long as their caller likes and cost nothing: event
// streams, uploads and downloads. An org may have at most half of them and a key a quarter. An org
// with next to none gets one even if all are taken, so that others cannot lock it out. It is safe
// for concurrent use.
type streams struct {
	most int // in total; 0 is no bound

	mu   sync.Mutex
	open int
	by   map[string]int // by org, and by "org key"
}

// streamsLeft is how many streams an org may have if all are taken.
const streamsLeft = 4

// connections bounds long-lived connections and ends them in a shutdown.
type connections struct {
	streams *streams
	drained context.Context // ends when the process shuts down
	drain   context.CancelFunc
	sockets *semaphore.Weighted // one for each open WebSocket
}

// maxSockets is more than there can be.
const maxSockets = 1 << 40

func newStreams(most int) *streams { return &streams{most: most, by: map[string]int{}} }

// begin takes a stream until the returned function is called.
func (s *streams) begin(org, key string) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := [2]string{org, org + " " + key}
	whose := ""
	switch {
	case s.most <= 0:
	case s.by[ids[1]] >= max(s.most/4, 1):
		whose = "with this API key"
	case s.by[ids[0]] >= max(s.most/2, 1):
		whose = "in this organization"
	case s.open >= s.most && s.by[ids[0]] >= streamsLeft:
		whose = "on this proxy"
	}
	if whose != "" {
		e := wire.RateLimited(fmt.Sprintf(
			"Too many simultaneous event streams, WebSockets, uploads and downloads %s (connections.streams: %d in "+
				"total)",
			whose, s.most), time.Second)
		e.Limit = s.of(ids, time.Now())
		e.Limit.Remaining = 0
		return nil, e
	}
	s.add(ids, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(ids, -1)
	}, nil
}

// state returns the bound of a key or of its org, whichever has less left; nil if there is none.
func (s *streams) state(org, key string, now time.Time) *wire.LimitState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of([2]string{org, org + " " + key}, now)
}

func (s *streams) of(ids [2]string, now time.Time) *wire.LimitState {
	if s.most <= 0 {
		return nil
	}
	ofKey, ofOrg := max(s.most/4, 1), max(s.most/2, 1)
	left := min(ofKey-s.by[ids[1]], ofOrg-s.by[ids[0]])
	return &wire.LimitState{ // a stream can end at any time
		Name: "streams", Unit: wire.UnitParallel, Amount: int64(ofKey), Remaining: int64(left), Reset: now.Add(time.Second),
	}
}

func (s *streams) add(ids [2]string, n int) {
	s.open += n
	for _, id := range ids {
		s.by[id] += n
		if s.by[id] == 0 {
			delete(s.by, id)
		}
	}
}

// lasting takes a stream for the rest of the exchange, in place of its units of reads.
func (c *connections) lasting(x *request) (func(), error) {
	x.endReads()
	done, err := c.streams.begin(x.caller.Org.ID, x.caller.Key)
	if limit := c.streams.state(x.caller.Org.ID, x.caller.Key, time.Now()); err == nil && limit != nil {
		x.limits = append(x.limits, *limit)
	}
	return done, err
}

// endReads returns what the exchange takes of its key's reads.
func (x *request) endReads() {
	if x.reading != nil {
		x.reading()
	}
}
