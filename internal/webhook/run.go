package webhook

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/escape"
)

// RunReached sends the event that a run has no money left for a call, to the org and to the operator.
// A run with the same amount has the same event.
func (s *Sender) RunReached(ctx context.Context, r alert.Run) error {
	topUp := "llmguard runs top-up " + r.ID() + " --org " + r.Org + " --add '$5'"
	data := map[string]any{
		"id": r.ID(), "org": r.Org, "user": r.User, "key": r.Key, "name": r.Name, "labels": r.Labels,
		"amount_nano_usd": int64(r.Amount), "spent_nano_usd": int64(r.Use.Spent),
		"remaining_nano_usd": int64(r.Use.Remaining), "expires_at": r.Expires.Unix(), "top_up": topUp,
	}
	if r.Labels == nil {
		data["labels"] = map[string]string{}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	e := NewEvent(RunReached, r.ID()+" "+strconv.FormatInt(int64(r.Amount), 10), r.At)
	e.Org, e.Object, e.Data = r.Org, r.ID(), string(text)
	title := r.ID()
	if r.Name != "" {
		title = escape.Quoted(r.Name) + " (" + r.ID() + ")"
	}
	e.Text = "llmguard: the run " + title + " of user " + r.User + " of org " + r.Org + " has reached its budget: " +
		r.Use.Spent.Short() + " of " + r.Amount.Short() + " spent. Its calls are refused. Add to it: " + topUp
	return s.sendBoth(ctx, e)
}
