package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/tenants"
	orgs "github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/pricing"
)

// brakesOf converts the brakes of an org: those of all orgs and its own.
func brakesOf(c *config.Config, o *config.Org) ([]*budget.Brake, error) {
	var out []*budget.Brake
	for _, b := range orgs.OrgBrakes(c.Brakes, o.Brakes) {
		made, err := budget.NewBrake(budget.Brake{
			ID: b.Name, Subject: budget.Subject(b.By), Models: b.Models, Endpoints: b.Endpoints,
			Action: budget.Action(b.Action), For: b.For, Rule: brakeRule(b.When),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// brakeRule returns the only rule that is set. Package config has checked it.
func brakeRule(w orgs.BrakeWhen) budget.BrakeRule {
	switch w.Rule() {
	case "repeats":
		return budget.BrakeRule{Window: w.Repeats.Window, Repeats: w.Repeats.MoreThan}
	case "calls":
		return budget.BrakeRule{Window: w.Calls.Window, Calls: w.Calls.MoreThan}
	}
	factor, _ := orgs.ParseFactor(w.Spend.Above)
	return budget.BrakeRule{Window: w.Spend.Window, Factor: factor, Floor: pricing.Nano(w.Spend.Floor.N)}
}

// brakeKeeper records the brakes that fire, and reports them: to webhooks, alerts, audit, log and metrics.
type brakeKeeper struct {
	store    *tenants.Store
	ledger   *budget.Ledger
	webhooks func() *webhook.Sender
	log      *slog.Logger
	fired    *prometheus.CounterVec
	firings  chan guard.BrakeFiring

	mu      sync.Mutex
	pending map[string]bool // firings in the channel, by org and record
}

const (
	// maxFirings is how many firings wait to be recorded; others are found again at the next call.
	maxFirings = 1000
	// sweepBrakes is the interval of removing records that have expired and of repeating reports, in case
	// a process died before it had sent one.
	sweepBrakes = time.Minute
	// reportBrakes is how long a firing is reported again. Webhooks ignore the same event for longer.
	reportBrakes = 5 * time.Minute
	// maxFirst bounds the ledger entries that are read for the first call of a firing.
	maxFirst = 10_000
)

func newBrakeKeeper(a *App) *brakeKeeper {
	k := &brakeKeeper{
		store: a.identity, ledger: a.budget.Ledger, webhooks: func() *webhook.Sender { return a.webhooks }, log: a.log,
		firings: make(chan guard.BrakeFiring, maxFirings), pending: map[string]bool{},
	}
	f := promauto.With(a.registry)
	k.fired = f.NewCounterVec(prometheus.CounterOpts{
		Name: "llmguard_brakes_fired_total", Help: "Brakes that fired, once per subject until they are released.",
	}, []string{"org", "brake", "action"})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmguard_brakes_active", Help: "Subjects that a brake stops now: action stop or ask.",
	}, k.active)
	return k
}

// active counts the subjects that are stopped now.
func (k *brakeKeeper) active() float64 {
	n, now := 0.0, time.Now()
	for _, list := range k.store.Snapshot().Brakes {
		for _, b := range list {
			if b.Fired(now) && budget.Action(b.Action).Refuses() {
				n++
			}
		}
	}
	return n
}

func (k *brakeKeeper) records(org string) tenants.Brakes { return k.store.Snapshot().Brakes[org] }

// fire accepts a firing. It does not block.
func (k *brakeKeeper) fire(f guard.BrakeFiring) {
	id := f.Org + " " + tenants.BrakeID(f.ID, f.Value)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pending[id] {
		return
	}
	select {
	case k.firings <- f:
		k.pending[id] = true
	default:
	}
}

// run records firings until ctx ends.
func (k *brakeKeeper) run(ctx context.Context) error {
	sweep := time.NewTicker(sweepBrakes)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-k.firings:
			if err := k.record(ctx, f); err != nil && ctx.Err() == nil {
				k.log.WarnContext(ctx, "firing of a brake not recorded, the next call will repeat it", "org", f.Org, "brake",
					f.ID, "err", err)
			}
			k.mu.Lock()
			delete(k.pending, f.Org+" "+tenants.BrakeID(f.ID, f.Value))
			k.mu.Unlock()
		case <-sweep.C:
			k.sweep(ctx)
		}
	}
}

// record stores a firing and reports it, unless it is known.
func (k *brakeKeeper) record(ctx context.Context, f guard.BrakeFiring) error {
	if known := k.records(f.Org); len(known) >= tenants.MaxBrakes ||
		known[tenants.BrakeID(f.ID, f.Value)].Counts(f.At) {
		return nil
	}
	f.Evidence.FirstCall = k.first(ctx, f)
	evidence, err := json.Marshal(f.Evidence)
	if err != nil {
		return err
	}
	at, life := f.At.UTC(), f.For
	if life == 0 {
		life = orgs.MaxBrakeLife
	}
	b := tenants.Brake{
		Stamp: tenants.Stamp{Created: at, Updated: at}, Brake: f.ID, Subject: string(f.Subject), Value: f.Value,
		Action: string(f.Action), Until: at.Add(life), Evidence: evidence,
	}
	done, err := k.store.FireBrake(ctx, f.Org, b, f.Evidence.Text(true))
	if err != nil || !done {
		return err
	}
	k.fired.WithLabelValues(f.Org, f.ID, string(f.Action)).Inc()
	k.log.WarnContext(ctx, "brake fired", "org", f.Org, "brake", f.ID, "subject", guard.BrakeSubject(f.Subject, f.Value),
		"action", string(f.Action), "evidence", f.Evidence.Text(true), "call", f.Evidence.LastCall)
	return k.report(ctx, f.Org, &b)
}

var errFound = errors.New("found")

// first returns the first call of the subject that the ledger has in the window; empty if it is not found
// quickly.
func (k *brakeKeeper) first(ctx context.Context, f guard.BrakeFiring) string {
	id, read := "", 0
	err := k.ledger.Entries(ctx, f.Org, f.At.Add(-f.Rule.Window), time.Time{}, func(e budget.Entry) error {
		read++
		if value, ok := f.Brake.Value(e.Call); ok && value == f.Value {
			id = e.ID
			return errFound
		}
		if read == maxFirst {
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		k.log.DebugContext(ctx, "first call of a firing not read", "org", f.Org, "brake", f.ID, "err", err)
	}
	return id
}

// report sends the event to the webhooks and alerts of the org and the operator. It is idempotent.
func (k *brakeKeeper) report(ctx context.Context, org string, b *tenants.Brake) error {
	seen, err := budget.ParseBrakeEvidence(b.Evidence)
	if err != nil {
		return err
	}
	subject := guard.BrakeSubject(budget.Subject(b.Subject), b.Value)
	text := fmt.Sprintf("llmguard: brake %s of org %s fired for %s: %s. ", b.Brake, org, subject, seen.Text(true)) +
		map[budget.Action]string{
			budget.BrakeStop: "Its calls are stopped until somebody releases them.", budget.BrakeSlow: "Its calls have low priority.",
			budget.BrakeAsk: "Its calls wait for an approval.", budget.BrakeShadow: "Nothing is held back.",
		}[budget.Action(b.Action)]
	e := webhook.NewEvent(webhook.BrakeFired, org+" "+b.Target()+" "+b.Created.Format(time.RFC3339Nano), b.Created)
	data, err := json.Marshal(map[string]any{
		"id": b.Brake, "org": org, "brake": b.Brake, "subject": subject, "action": b.Action, "until": b.Until.Unix(),
		"evidence": b.Evidence, "text": text,
	})
	if err != nil {
		return err
	}
	e.Object, e.Data, e.Text = b.Brake, string(data), text
	return errors.Join(k.webhooks().Send(ctx, org, e), k.webhooks().Send(ctx, alert.Everyone, e))
}

// sweep removes expired records and repeats the reports of recent firings.
func (k *brakeKeeper) sweep(ctx context.Context) {
	now := time.Now()
	err := k.store.ExpireBrakes(ctx, now.UTC())
	for org, list := range k.store.Snapshot().Brakes {
		for _, b := range list {
			if b.Fired(now) && b.By == "" && now.Sub(b.Created) < reportBrakes {
				err = errors.Join(err, k.report(ctx, org, b))
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		k.log.WarnContext(ctx, "brakes not swept, will retry", "err", err)
	}
}
