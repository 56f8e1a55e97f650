package webhook

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Target is a target of an org's events, for operators. The URL may be a secret, so only its
// host is shown.
type Target struct {
	ID     string     `json:"id" col:"id"`
	Org    string     `json:"org" col:"org"`
	Host   string     `json:"host" col:"host;;(set by a request)"` // empty: named by a request
	Events []string   `json:"events" col:"events;all"`             // none: all
	Off    *time.Time `json:"off_at" col:"status;off;on"`          // when it answered 410 and was disabled; null: enabled
}

// ErrNotOff is returned for a target that is not disabled.
var ErrNotOff = errors.New("webhook: no such target is off")

// Targets lists the targets of an org's events: the configured ones, and those named by
// requests that are disabled.
func (s *Sender) Targets(ctx context.Context, orgID string) ([]Target, error) {
	off, err := s.rdb.HGetAll(ctx, offKey(orgID)).Result()
	if err != nil {
		return nil, wrap("list targets", err)
	}
	var out []Target
	if o := s.org(orgID); o != nil {
		for i, t := range o.targets {
			out = append(out, Target{
				ID: t.print, Org: orgID, Host: t.url.Host, Events: slices.Clone(o.Endpoints[i].Events),
				Off: offAt(off[t.print]),
			})
			delete(off, t.print)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(off)) {
		out = append(out, Target{ID: id, Org: orgID, Off: offAt(off[id])})
	}
	return out, nil
}

// offAt parses when a target was disabled; "" means it is not.
func offAt(text string) *time.Time {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	at := time.Unix(seconds, 0).UTC()
	return &at
}

// SwitchOn enables a disabled target. Deliveries that failed meanwhile stay dead letters. The
// error is ErrNotOff or from Redis.
func (s *Sender) SwitchOn(ctx context.Context, orgID, id string) error {
	n, err := s.rdb.HDel(ctx, offKey(orgID), id).Result()
	if err == nil && n == 0 {
		return ErrNotOff
	}
	return wrap("switch on", err)
}

// Orgs returns the orgs that have targets.
func (s *Sender) Orgs() (ids []string) {
	for id, o := range *s.orgs.Load() {
		if len(o.targets)+len(o.Hosts) > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
