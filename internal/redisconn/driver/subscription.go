package driver

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// subscription implements redisconn.Subscription. It adds the prefix itself, because go-redis has no hooks for
// subscriptions.
type subscription struct {
	sub    *redis.PubSub
	prefix string
}

func (d *db) Subscribe(ctx context.Context, channels ...string) redisconn.Subscription {
	return &subscription{d.rdb.Subscribe(ctx, prefixed(d.prefix, channels)...), d.prefix}
}

// Subscribe is DB.Subscribe for those who need a client of go-redis.
func Subscribe(ctx context.Context, rdb redis.UniversalClient, channels ...string) *redis.PubSub {
	return rdb.Subscribe(ctx, prefixed(prefixOf(rdb), channels)...)
}

func prefixed(prefix string, channels []string) []string {
	if prefix == "" {
		return channels
	}
	named := make([]string, len(channels))
	for i, name := range channels {
		named[i] = prefix + name
	}
	return named
}

func (s *subscription) Subscribe(ctx context.Context, channels ...string) error {
	return s.sub.Subscribe(ctx, prefixed(s.prefix, channels)...)
}

func (s *subscription) Unsubscribe(ctx context.Context, channels ...string) error {
	return s.sub.Unsubscribe(ctx, prefixed(s.prefix, channels)...)
}

func (s *subscription) Each(fn func(redisconn.Message)) {
	for m := range s.sub.ChannelWithSubscriptions(redis.WithChannelSize(1000)) {
		switch m := m.(type) {
		case *redis.Message:
			fn(redisconn.Message{Channel: strings.TrimPrefix(m.Channel, s.prefix), Text: m.Payload})
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				fn(redisconn.Message{Channel: strings.TrimPrefix(m.Channel, s.prefix), Joined: true})
			}
		}
	}
}

func (s *subscription) Close() error { return s.sub.Close() }
