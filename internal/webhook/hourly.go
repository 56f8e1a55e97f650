package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/lua"
)

// Omitted is the type of the event that counts the events beyond Endpoint.PerHour. Only endpoints with
// this bound get it, whatever their Events.
const Omitted = "alert.omitted"

const (
	// maxCounted is how many events of an org, target and hour are counted.
	maxCounted = 1000
	// countedFor is how long the count waits for a worker.
	countedFor = 24 * time.Hour
	// countRound is the Round of the delivery that waits for the end of the hour, to be counted then.
	countRound = "count"
)

var numberScript = lua.Load("webhook_number")

// hourKey is a ZSET of the events of an org for a target in the hour that starts at a Unix time.
func hourKey(org, target string, hour int64) string {
	return "lg:{" + org + "}:webhooks:hour:" + target + ":" + strconv.FormatInt(hour, 10)
}

// bounded reports whether an event may be delivered to the target d.Target, which gets at most so many of
// the org in the event's hour. If not, the event is counted, and one delivery of the count is queued for
// the end of the hour. Repeating it for the same event changes nothing.
func (s *Sender) bounded(ctx context.Context, d *delivery, org string, most int) (bool, error) {
	start := time.Unix(d.Created, 0).Truncate(time.Hour)
	number, err := numberScript.Run(ctx, s.rdb, []string{hourKey(org, d.Target, start.Unix())}, d.Type+" "+d.Event,
		maxCounted, countedFor.Milliseconds()).Int()
	if err != nil || number <= most {
		return true, wrap("count", err)
	}
	rest := delivery{
		Org: d.Org, Of: org, Target: d.Target, Type: Omitted, Created: start.Unix(), Object: org, Round: countRound,
		Event: NewEvent(Omitted, org+" "+d.Target+" "+start.String(), start).ID,
	}
	rest.Until = time.Now().Add(time.Hour + s.opts.GiveUp).Unix()
	return false, s.enqueue(ctx, &rest, asynq.ProcessAt(start.Add(time.Hour)))
}

// count replaces the delivery that waited for the end of the hour by one that says how many events were
// omitted.
func (s *Sender) count(ctx context.Context, d delivery, most int) error {
	events, err := s.rdb.ZRange(ctx, hourKey(d.Of, d.Target, d.Created), int64(most), -1).Result()
	if err != nil || len(events) == 0 { // none: the bound was raised, or no worker ran for a day
		return wrap("count", err)
	}
	counts := map[string]int{}
	for _, e := range events {
		typ, _, _ := strings.Cut(e, " ")
		counts[typ]++
	}
	types := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for i, typ := range types {
		types[i] = fmt.Sprintf("%d %s", counts[typ], typ)
	}
	number := strconv.Itoa(len(events))
	if len(events)+most >= maxCounted {
		number = "at least " + number
	}
	start := time.Unix(d.Created, 0).UTC()
	d.Text = fmt.Sprintf("llmguard: and %s more alerts of org %s %s: %s. "+
		"An org sends at most %d alerts an hour.",
		number, d.Of, figures.Between(start, start.Add(time.Hour)), strings.Join(types, ", "), most)
	d.Data, err = json.Marshal(map[string]any{
		"id": d.Of, "org": d.Of, "from": d.Created, "to": start.Add(time.Hour).Unix(), "count": len(events),
		"counts": counts, "text": d.Text,
	})
	if err != nil {
		return wrap("count", err)
	}
	d.Round = ""
	return s.enqueue(ctx, &d)
}
