package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var deadScript = lua.Load("webhook_dead")

// Reason is why a delivery failed for good.
type Reason string

// The reasons.
const (
	// Exhausted: it was retried until GiveUp.
	Exhausted Reason = "exhausted"
	// Gone: the target answered it with 410. Disabled: the target answered an earlier event
	// with 410, and its configuration has not changed since.
	Gone     Reason = "gone"
	Disabled Reason = "disabled"
	// Refused: the target has no allowed address.
	Refused Reason = "refused"
	// Removed: the target is no longer configured.
	Removed Reason = "removed"
)

// DeadLetter is a delivery that failed for good.
type DeadLetter struct {
	ID       string    `json:"id" col:"id"`
	Org      string    `json:"org" col:"org"`
	Event    string    `json:"event"` // event id, sent as webhook-id
	Type     string    `json:"type" col:"event"`
	Object   string    `json:"object" col:"of"`
	Host     string    `json:"host" col:"host"` // of the target; empty if it was removed
	Reason   Reason    `json:"reason" col:"reason"`
	Status   int       `json:"status,omitempty"` // of the last response
	Error    string    `json:"error" col:"last error"`
	Attempts int       `json:"attempts" col:"tries"`
	Died     time.Time `json:"died_at" col:"age;age"`
}

// ErrNotDead is returned for an unknown dead letter.
var ErrNotDead = errors.New("webhook: no such dead letter")

func deadKeys(org string) []string {
	return []string{"lg:{" + org + "}:webhooks:dead", "lg:{" + org + "}:webhooks:letters"}
}

// offKey is a hash: target as configured -> Unix time of its 410.
func offKey(org string) string { return "lg:{" + org + "}:webhooks:off" }

// letter is a dead letter as stored in Redis.
type letter struct {
	DeadLetter
	Delivery delivery `json:"delivery"`
}

// bury stores a dead letter; the task is done only if that succeeds.
func (s *Sender) bury(ctx context.Context, d *delivery, why Reason, r result, attempts int) error {
	l := letter{Delivery: *d, DeadLetter: DeadLetter{
		ID: d.id(), Org: d.Org, Event: d.Event, Type: d.Type, Object: d.Object, Reason: why,
		Status: r.status, Error: r.problem().Error(), Attempts: attempts, Died: time.Now().UTC(),
	}}
	if t, err := s.find(d); err == nil {
		l.Host = t.url.Host
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if err := deadScript.Run(ctx, s.rdb, deadKeys(d.Org), l.ID, text, l.Died.UnixMicro(),
		s.opts.DeadLetters, s.opts.DeadTTL.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("webhook: keep dead letter %s: %w", l.ID, err)
	}
	s.metrics.dead.WithLabelValues(string(why)).Inc()
	s.log.ErrorContext(ctx, "webhook given up", "org", d.Org, "event", d.Event, "type", d.Type, "host", l.Host,
		"reason", string(why), "attempts", attempts)
	return nil
}

// offTTL is longer than anything stays queued for a disabled target.
const offTTL = 90 * 24 * time.Hour

// disable disables a target until its configuration changes.
func (s *Sender) disable(ctx context.Context, org string, t *target) error {
	pipe := s.rdb.TxPipeline()
	pipe.HSet(ctx, offKey(org), t.print, strconv.FormatInt(time.Now().Unix(), 10))
	pipe.Expire(ctx, offKey(org), offTTL)
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("webhook: disable: %w", err)
	}
	s.log.ErrorContext(ctx, "webhook target answered 410, disabled until its configuration changes", "org", org, "host",
		t.url.Host)
	return nil
}

// Dead returns up to limit dead letters of an org, newest first.
func (s *Sender) Dead(ctx context.Context, org string, limit int) ([]DeadLetter, error) {
	keys := deadKeys(org)
	ids, err := s.rdb.ZRevRange(ctx, keys[0], 0, int64(max(limit, 1))-1).Result()
	if err != nil || len(ids) == 0 {
		return nil, wrap("list dead letters", err)
	}
	texts, err := s.rdb.HMGet(ctx, keys[1], ids...).Result()
	if err != nil {
		return nil, wrap("list dead letters", err)
	}
	out := make([]DeadLetter, 0, len(ids))
	for _, text := range texts {
		var l letter
		if text, ok := text.(string); ok && json.Unmarshal([]byte(text), &l) == nil {
			out = append(out, l.DeadLetter)
		}
	}
	return out, nil
}

// Replay queues a dead letter again, with the retries of a new event, and removes it from the
// list. It keeps the webhook-id. Repeating it for the same letter does not deliver twice. The
// error is ErrNotDead or from Redis.
func (s *Sender) Replay(ctx context.Context, org, id string) (DeadLetter, error) {
	keys := deadKeys(org)
	text, err := s.rdb.HGet(ctx, keys[1], id).Result()
	if redisconn.IsNil(err) {
		return DeadLetter{}, ErrNotDead
	}
	if err != nil {
		return DeadLetter{}, wrap("replay", err)
	}
	var l letter
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return DeadLetter{}, wrap("replay", err)
	}
	d := l.Delivery
	d.Until = time.Now().Add(s.opts.GiveUp).Unix()
	d.Round = strconv.FormatInt(l.Died.UnixMicro(), 36)
	if err := s.enqueue(ctx, &d); err != nil {
		return DeadLetter{}, err
	}
	pipe := s.rdb.TxPipeline()
	pipe.ZRem(ctx, keys[0], id)
	pipe.HDel(ctx, keys[1], id)
	err = pipe.Exec(ctx)
	return l.DeadLetter, wrap("replay", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("webhook: %s: %w", what, err)
}
