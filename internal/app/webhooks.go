package app

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// Webhooks returns the webhooks of a configuration for inspection and for commands. It does
// not run them.
func Webhooks(cfg *config.Config, rdb redisconn.DB, log *slog.Logger) (*webhook.Sender, error) {
	o, err := webhookOptions(cfg)
	if err != nil {
		return nil, err
	}
	o.Log = log
	return webhook.New(rdb, o)
}

// webhookOptions returns the configured targets and their bounds.
func webhookOptions(c *config.Config) (webhook.Options, error) {
	w := c.Webhooks
	o := webhook.Options{
		Orgs: map[string]webhook.Org{}, AllowNetworks: w.AllowNetworks, AllowHTTP: w.AllowHTTP,
		Timeout: w.Timeout, GiveUp: w.GiveUp, ConsoleURL: strings.TrimRight(c.Admin.PublicURL, "/"),
	}
	for i := range c.Orgs {
		one, err := webhooksOf(&c.Orgs[i])
		if err != nil {
			return o, fmt.Errorf("org %s: %w", c.Orgs[i].ID, err)
		}
		o.Orgs[c.Orgs[i].ID] = one
	}
	if c.Alerts.URL != "" {
		t, err := alertTarget(c.Alerts)
		if err != nil {
			return o, fmt.Errorf("alerts: %w", err)
		}
		o.Orgs[alert.Everyone] = webhook.Org{Endpoints: []webhook.Endpoint{t}}
	}
	if w.CAFile != "" {
		pem, err := os.ReadFile(w.CAFile)
		if err != nil {
			return o, fmt.Errorf("webhooks.ca_file: %w", err)
		}
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM(pem) {
			return o, fmt.Errorf("webhooks.ca_file: %s contains no certificate", w.CAFile)
		}
	}
	return o, o.Validate()
}

func webhooksOf(o *config.Org) (webhook.Org, error) {
	out := webhook.Org{Hosts: o.RequestWebhooks.Hosts}
	var err error
	out.Secrets, err = signers(o.RequestWebhooks.Secrets)
	if err != nil {
		return out, err
	}
	for _, w := range o.Webhooks {
		e := webhook.Endpoint{URL: w.URL, Events: w.Events}
		e.Secrets, err = signers(w.Secrets)
		if err != nil {
			return out, err
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	if o.Alerts.URL != "" {
		e, err := alertTarget(o.Alerts)
		if err != nil {
			return out, err
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out, nil
}

func signers(list []config.Secret) ([]webhook.Secret, error) {
	var out []webhook.Secret
	var errs []error
	for _, text := range list {
		s, err := webhook.ParseSecret(text.Reveal())
		out, errs = append(out, s), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// announce notifies the webhooks of ended jobs, in whatever process they ended.
func (a *App) announce(ctx context.Context) error {
	return a.queue.Announce(ctx, func(ctx context.Context, e queue.JobEnd) error {
		if e.State == queue.Succeeded && webhook.ForResponse(e.Notice) {
			state, err := a.responseState(ctx, e)
			if err != nil {
				return err
			}
			e.State = state
		}
		return a.webhooks.Ended(ctx, e)
	})
}

// responseState returns how the response of a job ended: a job also succeeds with a
// response that the provider reports as incomplete or failed.
func (a *App) responseState(ctx context.Context, e queue.JobEnd) (queue.State, error) {
	job, err := a.queue.Job(ctx, e.Org, e.ID)
	if errors.Is(err, queue.ErrNotFound) { // deleted in the meantime
		return e.State, nil
	}
	if err != nil {
		return "", err
	}
	answer, err := a.queue.Result(ctx, job)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return "", err
	}
	body := answer.Body
	if job.Stream {
		body = wire.FinalResponse(body)
	}
	var response struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(body, &response) == nil {
		switch response.Status {
		case "incomplete", "failed", "cancelled":
			return queue.State(response.Status), nil
		}
	}
	return e.State, nil
}

// batchEnded notifies the webhooks of a batch that ended.
func (a *App) batchEnded(ctx context.Context, b *batch.Batch) error {
	e := webhook.NewEvent("batch."+string(b.Status), b.ID, b.Ended())
	e.URL = b.Metadata[batch.MetadataWebhook]
	return a.webhooks.Send(ctx, b.Org, e)
}
