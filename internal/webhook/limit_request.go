package webhook

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
)

// RaiseRequested sends the event that a caller requests more of a limit, to the org and to the
// operator.
func (s *Sender) RaiseRequested(ctx context.Context, r tenants.RaiseRequest) error {
	return s.raise(ctx, r, NewEvent(RaiseRequested, r.ID, r.Created))
}

// RaiseDecided sends the event that such a request has ended.
func (s *Sender) RaiseDecided(ctx context.Context, r tenants.RaiseRequest) error {
	return s.raise(ctx, r, NewEvent(RaiseDecided, r.ID, r.Decision.At))
}

func (s *Sender) raise(ctx context.Context, r tenants.RaiseRequest, e Event) error {
	data := map[string]any{
		"id": r.ID, "org": r.Org, "user": r.User, "limit": r.Limit, "subject": r.Subject, "status": r.State,
		"amount_nano_usd": r.Amount, "until": r.Until.Unix(), "reason": r.Reason,
	}
	if d := r.Decision; d != nil {
		data["decided_by"], data["decision_reason"] = d.By, d.Reason
		if r.State == tenants.RaiseApproved {
			data["approved_nano_usd"], data["approved_until"] = d.Amount, d.Until.Unix()
		}
	}
	if link := s.raiseLink(r.ID); link != "" {
		data["url"] = link
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	e.Org, e.Data, e.Text = r.Org, string(text), s.raiseText(&r)
	return s.sendBoth(ctx, e)
}

// sendBoth sends an event to the org whose callers caused it, and to the operator.
func (s *Sender) sendBoth(ctx context.Context, e Event) error {
	if err := s.Send(ctx, e.Org, e); err != nil {
		return err
	}
	return s.Send(ctx, alert.Everyone, e)
}

// raiseLink returns the console's page of a request; empty if it is not known where it is.
func (s *Sender) raiseLink(id string) string {
	if s.opts.ConsoleURL == "" {
		return ""
	}
	return s.opts.ConsoleURL + "/console/limit-requests?id=" + url.QueryEscape(id)
}

// raiseText returns a request in words, for chats. What a caller wrote is quoted such that the chat
// neither links nor mentions anything in it.
func (s *Sender) raiseText(r *tenants.RaiseRequest) string {
	what := "limit " + r.Limit + " of " + r.Subject
	if r.Only != "" {
		what += " " + escape.Quoted(r.Only)
	}
	who := "user " + r.User + " of org " + r.Org
	d := r.Decision
	switch {
	case d == nil:
		text := "llmguard: " + who + " requests " + more(r.Amount, what, r.Until) + ". Reason: " +
			escape.Quoted(r.Reason) + ". "
		if link := s.raiseLink(r.ID); link != "" {
			return text + "Approve or deny: " + link
		}
		return text + "Approve or deny: llmguard limits requests approve " + r.ID + ", or deny " + r.ID
	case r.State == tenants.RaiseApproved:
		return "llmguard: " + escape.Chat(d.By) + " approved " + more(d.Amount, what, d.Until) + ", requested by " + who +
			because(d.Reason) + "."
	case r.State == tenants.RaiseDenied:
		return "llmguard: " + escape.Chat(d.By) + " denied " + more(r.Amount, what, r.Until) + ", requested by " + who +
			because(d.Reason) + "."
	}
	return "llmguard: the request of " + who + " for " + more(r.Amount, what, r.Until) + " is " + string(r.State) + "."
}

func more(nano int64, what string, until time.Time) string {
	return pricing.Nano(nano).Short() + " more for " + what + " until " + figures.Minute(until)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + escape.Quoted(reason)
}
