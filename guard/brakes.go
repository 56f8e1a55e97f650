package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

// Braking is one brake that counts a call, and the id of its subject in the call.
type Braking struct {
	*budget.Brake
	Value  string
	shared string // the id of Brake.By; empty if that is the Subject
}

// BrakeFiring is a brake that fired at a call.
type BrakeFiring struct {
	Org string
	Braking
	Request  string // the fingerprint of the call at which it fired
	At       time.Time
	Evidence budget.BrakeEvidence
}

// BrakedError means that a brake refuses the call. Nothing was sent or charged.
type BrakedError struct {
	Org, Brake string
	Subject    budget.Subject
	Value      string
	Action     budget.Action
	Why        string    // what the brake saw; may be empty
	Until      time.Time // zero: until it is released
	// Held means that the brake has not fired: only with the calls that are open is this one too many.
	Held bool
}

func (e *BrakedError) Error() string { return e.Public().Message }

// Public words the refusal for the caller.
func (e *BrakedError) Public() *wire.Error {
	what := BrakeSubject(e.Subject, e.Value)
	why := ""
	if e.Why != "" {
		why = ": " + e.Why
	}
	if e.Held {
		return wire.BrakeStopped(fmt.Sprintf("Brake %q does not admit this call of %s in addition to its open calls%s. "+
			"Repeat it once they have ended.", e.Brake, what, why))
	}
	if e.Action == budget.BrakeAsk {
		return wire.ApprovalRequired(fmt.Sprintf("Brake %q asks for approval of further calls of %s%s.", e.Brake, what, why))
	}
	until := ""
	if !e.Until.IsZero() {
		until = " until " + e.Until.UTC().Format(time.RFC3339)
	}
	return wire.BrakeStopped(fmt.Sprintf("Brake %q has stopped the calls of %s%s%s.", e.Brake, what, until, why))
}

// BrakeSubject writes a subject and its id as people do: "run=abc", or "user=carol, run=abc".
func BrakeSubject(s budget.Subject, value string) string {
	parts, values := s.Parts(), strings.Split(value, ",")
	if len(parts) != len(values) {
		return value
	}
	for i := range parts {
		parts[i] += "=" + values[i]
	}
	return strings.Join(parts, ", ")
}

// brakingOf returns the brakes that count the plan's call.
func brakingOf(p *Plan) []Braking {
	if len(p.Caller.Org.Brakes) == 0 {
		return nil
	}
	c := p.Caller.subject()
	var out []Braking
	for _, b := range p.Caller.Org.Brakes {
		if len(p.applying(b.Counters()[:1])) == 0 {
			continue
		}
		if b.Rule.Repeats > 0 && p.Fingerprint == "" {
			p.Fingerprint = fingerprint(p.Request)
		}
		c.Request = p.Fingerprint
		if value, ok := b.Value(c); ok {
			one := Braking{Brake: b, Value: value}
			if b.By != "" && b.By != b.Subject {
				one.shared = b.By.ID(c)
			}
			out = append(out, one)
		}
	}
	return out
}

// fingerprintLength is in hex digits: two of a million different requests are equal once in 30 million
// times.
const fingerprintLength = 16

// unasked lists the members of bodies that do not change what the model is asked. Clients set them anew
// for every request, or a repetition could hide behind them.
var unasked = []string{
	"background", "client_metadata", "client_request_id", "correlation_id", "idempotency_key", "litellm_call_id",
	"litellm_metadata", "litellm_session_id", "litellm_trace_id", "metadata", "nonce", "prompt_cache_key",
	"prompt_cache_options", "prompt_cache_retention", "request_id", "safety_identifier", "seed", "service_tier",
	"session_id", "span_id", "store", "stream", "stream_options", "timestamp", "trace_id", "user", "user_id",
}

// fingerprint identifies a request by its endpoint and what the model is asked: the members of its JSON
// body without the unasked ones, whatever their order. It is empty for forms.
func fingerprint(r *wire.Request) string {
	if r.Form != nil || len(r.Body) == 0 {
		return ""
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(r.Body, &members) != nil { // wire.Scan has read it, so this cannot happen
		return ""
	}
	for _, name := range unasked {
		delete(members, name)
	}
	body := []byte(r.Endpoint)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := jsontext.Value(members[name])
		if value.Canonicalize() != nil { // numbers that have no canonical form, for example
			value = bytes.TrimSpace(members[name])
		}
		body = append(append(append(strconv.AppendQuote(body, name), ':'), value...), ',')
	}
	return string(idempotency.FingerprintOf(body))[:fingerprintLength]
}

// countersOf returns the limits of a plan, followed by what its brakes count.
func countersOf(p *Plan) []budget.Limit {
	if len(p.Brakes) == 0 {
		return p.Limits
	}
	all := slices.Clip(p.Limits)
	for _, b := range p.Brakes {
		all = append(all, b.Counters()...)
	}
	return all
}

// brakes applies the brakes of orgs.
type brakes struct {
	records func(org string) tenants.Brakes // may be nil
	// fired may be nil
	fired func(context.Context, BrakeFiring)
}

// fireWait bounds how long a call waits for the record of its firing. Later calls of the subject through
// this process are then refused, whatever they are.
const fireWait = 2 * time.Second

// record returns what is recorded about a brake for a call; nil if nothing counts now.
func (bs *brakes) record(org string, b Braking, now time.Time) *tenants.Brake {
	if bs.records == nil {
		return nil
	}
	all := bs.records(org)
	if r := all[tenants.BrakeID(b.ID, b.Value)]; r.Counts(now) {
		return r
	}
	if b.shared == "" {
		return nil
	}
	// An older version fired for all users, and operators can stop all by hand.
	r := all[tenants.BrakeID(b.ID, b.shared)]
	if !r.Counts(now) || r.Subject != string(b.By) {
		return nil
	}
	return r
}

func (bs *brakes) slows(p *Plan) bool {
	if len(p.Brakes) == 0 {
		return false
	}
	now := time.Now()
	return slices.ContainsFunc(p.Brakes, func(b Braking) bool {
		r := bs.record(p.Caller.Org.ID, b, now)
		return r.Fired(now) && budget.Action(r.Action) == budget.BrakeSlow
	})
}

// check returns a *BrakedError if a brake that has fired refuses the plan's call.
func (bs *brakes) check(p *Plan) error {
	if len(p.Brakes) == 0 {
		return nil
	}
	now := time.Now()
	for _, b := range p.Brakes {
		r := bs.record(p.Caller.Org.ID, b, now)
		if r.Fired(now) && budget.Action(r.Action).Refuses() {
			return b.refusal(p.Caller.Org.ID, r)
		}
	}
	return nil
}

func (b Braking) refusal(org string, r *tenants.Brake) *BrakedError {
	e := &BrakedError{
		Org: org, Brake: b.ID, Subject: budget.Subject(r.Subject), Value: r.Value, Action: budget.Action(r.Action),
		Until: r.Until,
	}
	if b.For == 0 {
		e.Until = time.Time{}
	}
	if seen, err := budget.ParseBrakeEvidence(r.Evidence); err == nil {
		e.Why = seen.Text(false)
	}
	return e
}

// judge reports the brakes that fire at a call that was just held, and ends it with a *BrakedError if one
// refuses it.
func (bs *brakes) judge(ctx context.Context, c *Call) error {
	p := c.Plan
	if len(p.Brakes) == 0 || c.Without != "" {
		return nil
	}
	now, counted := time.Now(), c.Hold.Counters
	var refused *BrakedError
	for _, b := range p.Brakes {
		n := min(len(b.Counters()), len(counted))
		seen, fires, over := b.Judge(counted[:n])
		counted = counted[n:]
		if r := bs.record(p.Caller.Org.ID, b, now); r != nil { // fired in the meantime, or released
			if refused == nil && r.Fired(now) && budget.Action(r.Action).Refuses() {
				refused = b.refusal(p.Caller.Org.ID, r)
			}
			continue
		}
		seen.LastCall = c.ID
		if fires && bs.fired != nil {
			bs.fire(ctx, BrakeFiring{Org: p.Caller.Org.ID, Braking: b, Request: p.Fingerprint, At: now, Evidence: seen})
		}
		if (fires || over) && refused == nil && b.Action.Refuses() {
			refused = &BrakedError{
				Org: p.Caller.Org.ID, Brake: b.ID, Subject: b.Subject, Value: b.Value, Action: b.Action, Why: seen.Text(false),
				Held: !fires,
			}
			if b.For > 0 {
				refused.Until = now.Add(b.For)
			}
		}
	}
	if refused == nil {
		return nil
	}
	c.End(ctx) // it was not sent, so it leaves no trace
	return refused
}

func (bs *brakes) fire(ctx context.Context, f BrakeFiring) {
	wait := fireWait
	if f.Action == budget.BrakeShadow {
		wait = 0 // nothing changes for its calls
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	bs.fired(ctx, f)
}

// BrakeRecorded counts a firing in the metrics. BrakeFired calls it once for each firing that it records.
func (g *Guard) BrakeRecorded(f BrakeFiring) {
	g.metrics.orgs.brakes.WithLabelValues(g.metrics.orgs.of(f.Org).name, f.ID, string(f.Action)).Inc()
}

// brakesActive counts the subjects that are stopped now.
func (g *Guard) brakesActive() (n float64) {
	if g.brakes.records == nil {
		return 0
	}
	now := time.Now()
	for org := range g.policy.Load().Orgs {
		for _, r := range g.brakes.records(org) {
			if r.Fired(now) && budget.Action(r.Action).Refuses() {
				n++
			}
		}
	}
	return n
}

// StoppedError means that an operator has stopped spending, for all orgs or for this one. Nothing
// was sent.
type StoppedError struct{ Everybody bool }

func (e *StoppedError) Error() string { return e.Public().Message }

// Public words the refusal for the caller.
func (e *StoppedError) Public() *wire.Error { return wire.SpendingStopped(e.Everybody) }

// Stopped returns a *StoppedError while the spending of an org is stopped, otherwise nil. For
// tenants.AllOrgs it only finds a stop of all spending.
func (g *Guard) Stopped(org string) error {
	if g.policy.Load().Stopped {
		return &StoppedError{Everybody: true}
	}
	if g.stops == nil {
		return nil
	}
	switch stops := g.stops(); {
	case len(stops) == 0:
		return nil
	case stops[tenants.AllOrgs] != nil:
		return &StoppedError{Everybody: true}
	case stops[org] != nil:
		return &StoppedError{}
	}
	return nil
}

// AllStopped reports whether all spending is stopped.
func (g *Guard) AllStopped() bool { return g.Stopped(tenants.AllOrgs) != nil }

// stopCounts returns 1 if all spending is stopped, and the number of orgs that are stopped
// themselves.
func (g *Guard) stopCounts() (all, orgs float64) {
	if g.stops != nil {
		stops := g.stops()
		orgs = float64(len(stops))
		if stops[tenants.AllOrgs] != nil {
			orgs--
		}
	}
	if g.AllStopped() {
		all = 1
	}
	return all, orgs
}
