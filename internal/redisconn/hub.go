package redisconn

import (
	"context"
	"log/slog"
	"sync"
)

// Hub shares one Redis pub/sub connection among all listeners of the process. Delivery
// is best effort: messages are lost while Redis is unavailable, when Run is not active, and
// when a listener is slow. Every listener must also poll.
type Hub struct {
	rdb DB
	log *slog.Logger

	mu        sync.Mutex
	listeners map[string]map[chan string]struct{}
	changed   map[string]struct{} // channels to subscribe to or leave
	kick      chan struct{}
}

// NewHub returns a Hub without listeners.
func NewHub(rdb DB, log *slog.Logger) *Hub {
	return &Hub{
		rdb: rdb, log: log, kick: make(chan struct{}, 1),
		listeners: make(map[string]map[chan string]struct{}),
		changed:   make(map[string]struct{}),
	}
}

// Listen returns a Go channel that receives the payloads of a Redis channel, as far as its
// buffer of `depth` has room, until leave is called.
func (h *Hub) Listen(channel string, depth int) (messages chan string, leave func()) {
	messages = make(chan string, depth)
	h.mu.Lock()
	if h.listeners[channel] == nil {
		h.listeners[channel] = make(map[chan string]struct{})
	}
	h.listeners[channel][messages] = struct{}{}
	h.change(channel)
	h.mu.Unlock()
	return messages, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners[channel], messages)
		if len(h.listeners[channel]) == 0 {
			delete(h.listeners, channel)
			h.change(channel)
		}
	}
}

func (h *Hub) change(channel string) {
	h.changed[channel] = struct{}{}
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// Run maintains the connection until ctx is done.
func (h *Hub) Run(ctx context.Context) {
	sub := h.rdb.Subscribe(ctx)
	var receiving sync.WaitGroup
	receiving.Go(func() {
		sub.Each(func(m Message) { h.deliver(m.Channel, m.Text) }) // "" after joining, so that listeners poll
	})
	h.mu.Lock()
	for channel := range h.listeners {
		h.change(channel)
	}
	h.mu.Unlock()
	joined := make(map[string]struct{})
	for {
		select {
		case <-ctx.Done():
			_ = sub.Close()
			receiving.Wait()
			return
		case <-h.kick:
			h.apply(ctx, sub, joined)
		}
	}
}

// apply subscribes to channels that have listeners and leaves those that have none.
func (h *Hub) apply(ctx context.Context, sub Subscription, joined map[string]struct{}) {
	var join, leave []string
	h.mu.Lock()
	for channel := range h.changed {
		_, in := joined[channel]
		switch wanted := len(h.listeners[channel]) > 0; {
		case wanted && !in:
			join = append(join, channel)
			joined[channel] = struct{}{}
		case !wanted && in:
			leave = append(leave, channel)
			delete(joined, channel)
		}
	}
	clear(h.changed)
	h.mu.Unlock()
	// If a call fails, the subscription repeats it after reconnecting.
	if len(join) > 0 {
		if err := sub.Subscribe(ctx, join...); err != nil {
			h.log.DebugContext(ctx, "channels not subscribed, will retry", "err", err)
		}
	}
	if len(leave) > 0 {
		if err := sub.Unsubscribe(ctx, leave...); err != nil {
			h.log.DebugContext(ctx, "channels not left, will retry", "err", err)
		}
	}
}

func (h *Hub) deliver(channel, payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for messages := range h.listeners[channel] {
		select {
		case messages <- payload:
		default:
		}
	}
}
