package guard

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/wire"
)

// CreateKey creates a run with a key of its own, and returns both. The errors are as of Create.
func (rs *Runs) CreateKey(
	ctx context.Context, p *Policy, c Caller, w RunWish, pepper keys.Pepper,
) (run budget.Run, text string, err error) {
	text = keys.NewRun(pepper)
	w.ID, w.Last4 = NewRunID(c, text), keys.Last4(text)
	if w.Name == "" {
		w.Name = w.Labels["run"]
	}
	if !ledger.ValidLabelValue(w.Name) {
		return run, "", wire.BadRequest("name", "invalid_value",
			"name must be at most %d letters, digits and . _ - : / @ + = ~ # %%", ledger.MaxLabelValue)
	}
	run, _, err = rs.Create(ctx, p, c, w)
	if err != nil {
		return run, "", err
	}
	err = rs.putKey(ctx, c, keys.Hash(pepper, text), &run)
	if err != nil { // nobody has the key
		_, ended := rs.End(ctx, c, run)
		return run, "", errors.Join(err, ended)
	}
	return run, text, nil
}

// RunLife parses a duration such as 2h, or a number of seconds.
func RunLife(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// RunView is the JSON form of a run in both APIs. Amounts are US dollars, times Unix seconds.
type RunView struct {
	ID          string            `json:"id" col:"id" fact:"id"`
	Object      string            `json:"object"`
	Status      string            `json:"status" col:"status" fact:"status"`
	Name        *string           `json:"name" col:"name" fact:"name"`
	Org         string            `json:"org" fact:"org"`
	User        string            `json:"user" col:"user" fact:"user"`
	ParentKey   string            `json:"parent_key" fact:"key that gave the budget"`
	Key         string            `json:"key,omitempty" secret:"key"`
	Last4       *string           `json:"key_last4" fact:"key ends with"`
	Parent      *string           `json:"parent" fact:"inside run"`
	Amount      string            `json:"amount" col:"amount;dollars" fact:"amount;dollars"`
	Spent       string            `json:"spent" col:"spent;dollars" fact:"spent;dollars"`
	Held        string            `json:"held" fact:"held;dollars"`
	Remaining   string            `json:"remaining" col:"remaining;dollars" fact:"remaining;dollars"`
	Models      []string          `json:"models" fact:"models;all"`
	Labels      map[string]string `json:"labels" fact:"labels"`
	Concurrency int64             `json:"concurrency" fact:"concurrency;;any"`
	Created     int64             `json:"created_at" fact:"created;minute"`
	Expires     int64             `json:"expires_at" col:"expires;minute" fact:"expires;minute"`
	Ended       *int64            `json:"ended_at" fact:"ended;minute"` // null unless it was ended
}

// ViewRun returns the view of a run at a time.
func ViewRun(r *budget.Run, use budget.RunUse, now time.Time) RunView {
	v := RunView{
		ID: r.ID(), Object: "run", Status: r.Status(use, now), Name: textOrNull(r.Name), Org: r.Org, User: r.User,
		ParentKey: r.Key, Last4: textOrNull(r.Last4),
		Parent: textOrNull(r.Parent.ID()), Amount: r.Amount.Decimal(), Spent: use.Spent.Decimal(), Held: use.Held.Decimal(),
		Remaining: use.Remaining.Decimal(), Models: r.Models, Labels: r.Labels, Concurrency: r.Concurrency,
		Created: r.Created.Unix(), Expires: r.Expires.Unix(),
	}
	if !r.Ended.IsZero() {
		at := r.Ended.Unix()
		v.Ended = &at
	}
	if v.Models == nil {
		v.Models = []string{}
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	return v
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
