package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/webhook"
)

// newAlerts returns the watcher of the limits of charged orgs and users.
func (a *App) newAlerts() *alert.Watcher {
	w := alert.New(alert.Options{
		Redis: a.rdb, Budget: a.budget, Log: a.log, Send: a.sendAlert,
		SendRun: func(ctx context.Context, r alert.Run) error { return a.webhooks.RunReached(ctx, r) },
		Limits: func(org, user string) []budget.Limit {
			o := a.guard.Policy().Orgs[org]
			if o == nil {
				return nil
			}
			return o.LimitsFor(user, "")
		},
	})
	w.SetRules(alertRules(a.cfg))
	return w
}

// reportRuns returns a function that records that a run has used up its amount, if a target of webhooks
// receives that.
func reportRuns(a *App) func(budget.Run) {
	return func(r budget.Run) {
		if a.webhooks.Wants(r.Org, webhook.RunReached) || a.webhooks.Wants(alert.Everyone, webhook.RunReached) {
			a.alerts.RunReached(r)
		}
	}
}

// alertRules returns who is alerted at which thresholds, by org.
func alertRules(c *config.Config) map[string][]alert.Rule {
	rules := map[string][]alert.Rule{}
	if c.Alerts.URL != "" {
		rules[alert.Everyone] = []alert.Rule{{
			To: alert.Everyone, Thresholds: c.Alerts.Percents(), Forecast: c.Alerts.Forecast,
		}}
	}
	for _, o := range c.Orgs {
		if o.Alerts.URL != "" {
			rules[o.ID] = []alert.Rule{{To: o.ID, Thresholds: o.Alerts.Percents(), Forecast: o.Alerts.Forecast}}
		}
	}
	return rules
}

// alertTarget returns the target of alerts as a webhook.
func alertTarget(a config.Alerts) (webhook.Endpoint, error) {
	secrets, err := signers(a.Secrets)
	return webhook.Endpoint{
		URL: a.URL.Reveal(), Secrets: secrets,
		Events: []string{
			webhook.LimitAlert, webhook.BrakeFired, webhook.RaiseRequested, webhook.RaiseDecided, webhook.RunReached,
		},
		Slack: a.Format == "slack", PerHour: a.PerHour,
	}, err
}

// sendAlert passes an alert to the webhooks.
func (a *App) sendAlert(ctx context.Context, is alert.Alert) error {
	data := map[string]any{
		"id": is.Limit, "org": is.Org, "limit": is.Limit, "mode": is.Mode, "threshold_percent": is.Threshold,
		"charged_nano_usd": int64(is.Charged), "amount_nano_usd": int64(is.Amount),
		"text": is.Text(),
	}
	if is.Reset < budget.Endless {
		data["reset_at"] = is.At.Add(is.Reset).Unix()
	}
	if is.UsedUp > 0 {
		data["used_up_at"] = is.At.Add(is.UsedUp).Unix()
		delete(data, "threshold_percent")
	}
	if is.User != "" {
		data["user"] = is.User
	}
	if is.Group != "" {
		data["group"] = is.Group
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return a.webhooks.Send(ctx, is.To, webhook.Event{
		ID: "evt_" + rand.Text(), Type: webhook.LimitAlert, Created: is.At.Truncate(time.Second), Object: is.Limit,
		Org: is.Org, Data: string(text), Text: is.Text(),
	})
}
