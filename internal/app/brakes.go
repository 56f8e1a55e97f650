package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	orgs "github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/pricing"
)

// brakesOf converts the brakes of an org: those of all orgs and its own.
func brakesOf(c *config.Config, o *config.Org) ([]*budget.Brake, error) {
	var out []*budget.Brake
	for _, b := range orgs.OrgBrakes(c.Brakes, o.Brakes) {
		subject, peers := c.BrakeSubject(b)
		made, err := budget.NewBrake(budget.Brake{
			ID: b.Name, Subject: budget.Subject(subject), By: budget.Subject(b.By), Peers: budget.Subject(peers),
			Models: b.Models, Endpoints: b.Endpoints, Action: budget.Action(b.Action), For: b.For, Rule: brakeRule(b.When),
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
	rule := budget.BrakeRule{Window: w.Window()}
	switch w.Rule() {
	case "repeats":
		rule.Repeats = w.Repeats.MoreThan
	case "calls":
		rule.Calls = w.Calls.MoreThan
	default:
		rule.Factor, _ = orgs.ParseFactor(w.Spend.Above)
		rule.Floor = pricing.Nano(w.Spend.Floor.N)
	}
	return rule
}

// brakeKeeper records the brakes that fire, and reports them: to webhooks, alerts, audit, log and metrics.
type brakeKeeper struct {
	store    *tenants.Store
	ledger   *ledger.Ledger
	webhooks func() *webhook.Sender
	log      *slog.Logger
	guard    func() *guard.Guard
	firings  chan guard.BrakeFiring
	before   map[string]tenants.Brakes // at the last call of changed

	mu      sync.Mutex
	pending map[firingID]*pendingFiring // those in the channel, or being recorded
}

type firingID struct{ org, record string }

func idOf(f *guard.BrakeFiring) firingID { return firingID{f.Org, tenants.BrakeID(f.ID, f.Value)} }

// pendingFiring is a firing that is not recorded yet.
type pendingFiring struct {
	brake *tenants.Brake
	done  chan struct{} // closed when it is recorded, or could not be
}

const (
	// maxFirings is how many firings wait to be recorded; others are found again at the next call.
	maxFirings = 1000
	// sweepBrakes is the interval of removing records that have expired and of repeating reports, in case
	// a process died before it had sent one.
	sweepBrakes = time.Minute
	// reportBrakes is how long a firing is reported again. Webhooks ignore the same event for longer.
	reportBrakes = 5 * time.Minute
	// maxFirst bounds the ledger entries that are read for the first and the last call of a firing.
	maxFirst = 10_000
	// firstWait bounds the search for them.
	firstWait = 500 * time.Millisecond
)

func newBrakeKeeper(a *App) *brakeKeeper {
	return &brakeKeeper{
		store: a.identity, ledger: a.budget.Ledger, log: a.log,
		webhooks: func() *webhook.Sender { return a.webhooks }, guard: func() *guard.Guard { return a.guard },
		firings: make(chan guard.BrakeFiring, maxFirings), pending: map[firingID]*pendingFiring{},
	}
}

// records returns the brakes of an org, with those that have fired here and are being recorded: when Redis is slow, no
// call of their subjects passes meanwhile.
func (k *brakeKeeper) records(org string) tenants.Brakes {
	known := k.store.Snapshot().Brakes[org]
	k.mu.Lock()
	defer k.mu.Unlock()
	copied := false
	for id, p := range k.pending {
		if id.org != org || known[id.record].Counts(p.brake.Created) {
			continue
		}
		if !copied {
			known, copied = maps.Clone(known), true
		}
		if known == nil {
			known = tenants.Brakes{}
		}
		known[id.record] = p.brake
	}
	return known
}

// changed returns the orgs whose records differ from those at the last call. It is not safe for concurrent use.
func (k *brakeKeeper) changed() map[string]bool {
	out, now := map[string]bool{}, k.store.Snapshot().Brakes
	for _, orgs := range []map[string]tenants.Brakes{k.before, now} {
		for org := range orgs {
			if !maps.Equal(k.before[org], now[org]) {
				out[org] = true
			}
		}
	}
	k.before = now
	return out
}

// fire records a firing, and returns once this process knows it, or when ctx ends or too many firings wait.
func (k *brakeKeeper) fire(ctx context.Context, f guard.BrakeFiring) {
	p := k.accept(f)
	if p == nil {
		return
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// accept returns the firing that waits to be recorded; nil if too many wait.
func (k *brakeKeeper) accept(f guard.BrakeFiring) *pendingFiring {
	id := idOf(&f)
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pending[id]; p != nil {
		return p
	}
	select {
	case k.firings <- f:
		k.pending[id] = &pendingFiring{brakeOf(&f), make(chan struct{})}
	default:
	}
	return k.pending[id]
}

// brakeOf returns the record of a firing.
func brakeOf(f *guard.BrakeFiring) *tenants.Brake {
	at, life := f.At.UTC(), cmp.Or(f.For, orgs.MaxBrakeLife)
	evidence, _ := json.Marshal(f.Evidence) // it has only numbers and strings
	return &tenants.Brake{
		Stamp: tenants.Stamp{Created: at, Updated: at}, Brake: f.ID, Subject: string(f.Subject), Value: f.Value,
		Action: string(f.Action), Until: at.Add(life), Evidence: evidence,
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
			b, err := k.record(ctx, f)
			k.done(f)
			if err == nil && b != nil {
				err = k.report(ctx, f.Org, b)
			}
			if err != nil && ctx.Err() == nil {
				k.log.WarnContext(ctx, "firing of a brake not recorded or not reported, will retry", "org", f.Org, "brake",
					f.ID, "err", err)
			}
		case <-sweep.C:
			k.sweep(ctx)
		}
	}
}

// done ends the waiting of calls for the record of a firing.
func (k *brakeKeeper) done(f guard.BrakeFiring) {
	id := idOf(&f)
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.pending[id].done)
	delete(k.pending, id)
}

// record stores a firing. It returns nil if it is known, or the org has too many.
func (k *brakeKeeper) record(ctx context.Context, f guard.BrakeFiring) (*tenants.Brake, error) {
	if known := k.store.Snapshot().Brakes[f.Org]; len(known) >= tenants.MaxBrakes ||
		known[tenants.BrakeID(f.ID, f.Value)].Counts(f.At) {
		return nil, nil
	}
	k.counted(ctx, &f)
	b := brakeOf(&f)
	done, err := k.store.FireBrake(ctx, f.Org, *b, f.Evidence.Text(true))
	if err != nil {
		return nil, err
	}
	if !done { // another process did, or it was released
		return nil, k.store.Refresh(ctx)
	}
	k.guard().BrakeRecorded(f)
	k.log.WarnContext(ctx, "brake fired", "org", f.Org, "brake", f.ID, "subject", guard.BrakeSubject(f.Subject, f.Value),
		"action", string(f.Action), "evidence", f.Evidence.Text(true), "call", f.Evidence.LastCall)
	return b, nil
}

// counted sets the first and the last call that the ledger has of those that the brake counted; as they were if
// they are not found quickly.
func (k *brakeKeeper) counted(ctx context.Context, f *guard.BrakeFiring) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	first, last, read := "", "", 0
	err := k.ledger.Entries(ctx, f.Org, f.At.Add(-f.Rule.Window), time.Time{}, func(e ledger.Entry) error {
		read++
		value, ok := f.Brake.Value(e.Call)
		same := f.Rule.Repeats == 0 || e.Request == f.Request
		if ok && same && value == f.Value && e.Kind == ledger.KindSettle && !guard.Outcome(e.Outcome).Failed() {
			first, last = cmp.Or(first, e.ID), e.ID
		}
		if read == maxFirst {
			return ledger.ErrEnough
		}
		return nil
	})
	f.Evidence.FirstCall = first
	switch {
	case err == nil && read < maxFirst: // all were read
		f.Evidence.LastCall = cmp.Or(last, f.Evidence.LastCall)
	case err != nil:
		k.log.DebugContext(ctx, "calls of a firing not read", "org", f.Org, "brake", f.ID, "err", err)
	}
}

// report sends the event to the webhooks and alerts of the org and the operator. It is idempotent.
func (k *brakeKeeper) report(ctx context.Context, org string, b *tenants.Brake) error {
	seen, err := budget.ParseBrakeEvidence(b.Evidence)
	if err != nil {
		return err
	}
	subject := guard.BrakeSubject(budget.Subject(b.Subject), b.Value)
	text := fmt.Sprintf("llmguard: brake %s of org %s fired for %s: %s. %s", b.Brake, org, escape.Quoted(subject),
		seen.Text(true), effect(org, b, subject))
	e := webhook.NewEvent(webhook.BrakeFired, org+" "+b.Target()+" "+b.Created.Format(time.RFC3339Nano), b.Created)
	data, err := json.Marshal(map[string]any{
		"id": b.Brake, "org": org, "brake": b.Brake, "subject": subject, "action": b.Action, "until": b.Until.Unix(),
		"evidence": b.Evidence, "text": text,
	})
	if err != nil {
		return err
	}
	e.Org, e.Object, e.Data, e.Text = org, b.Brake, string(data), text
	return errors.Join(k.webhooks().Send(ctx, org, e), k.webhooks().Send(ctx, alert.Everyone, e))
}

// effect says what a firing does to the calls of its subject, and how to release it.
func effect(org string, b *tenants.Brake, subject string) string {
	until := "until it is released"
	if b.Until.Sub(b.Created) < orgs.MaxBrakeLife {
		until = "until " + figures.Minute(b.Until)
	}
	what := map[budget.Action]string{
		budget.BrakeStop: "Its calls are stopped ", budget.BrakeAsk: "Its calls need an approval ",
		budget.BrakeSlow: "Its calls have low priority ",
	}[budget.Action(b.Action)]
	if what == "" {
		return "Its calls continue: the brake is in shadow mode."
	}
	return what + until + ": " + escape.Quoted(fmt.Sprintf("llmguard brakes release --org %s --brake %s %s", org, b.Brake,
		strings.ReplaceAll(subject, ", ", " ")))
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
