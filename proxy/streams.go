package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// streams bounds what lasts as long as its caller likes and costs nothing: event streams,
// uploads and downloads. One org has half of the places and one key a quarter at most. An
// org that has next to none gets one also where all are taken, so that others cannot shut
// it out. It is safe for concurrent use.
type streams struct {
	most int // in all; 0 is no bound

	mu   sync.Mutex
	open int
	by   map[string]int // by org, and by "org key"
}

// streamsLeft is how many streams an org may have where all places are taken.
const streamsLeft = 4

// connections bounds those that stay open for long, and ends them in a shutdown.
type connections struct {
	streams *streams
	drained context.Context // ends when the process shuts down
	drain   context.CancelFunc
}

func newStreams(most int) *streams { return &streams{most: most, by: map[string]int{}} }

// begin takes a place until the returned function is called.
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
		return nil, wire.RateLimited(fmt.Sprintf(
			"Too many event streams, uploads and downloads at a time %s (connections.streams: %d in all)",
			whose, s.most), time.Second)
	}
	s.add(ids, 1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(ids, -1)
	}, nil
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

// lasting takes a place among the streams for what is left of the exchange, instead of
// its units of reads.
func (c *connections) lasting(x *request) (func(), error) {
	x.endReads()
	return c.streams.begin(x.caller.Org.ID, x.caller.Key)
}

// endReads ends what the exchange takes of its key's reads.
func (x *request) endReads() {
	if x.reading != nil {
		x.reading()
	}
}
