package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Limits of a replay: the number of calls, newest first, and the time. One replay runs at a
// time.
const (
	replayCalls = 50_000
	replayTime  = 20 * time.Second
	replayDays  = 30
)

// replayer decides the last calls of an org again under changed settings.
type replayer struct {
	opts      *Options
	replaying chan struct{} // holds a token while a replay runs
}

func newReplayer(o *Options) *replayer { return &replayer{opts: o, replaying: make(chan struct{}, 1)} }

// replay runs the last calls of an org under its settings before and after.
func (h *replayer) replay(c *call, before, after *settings.Org, days int) (*Replay, error) {
	if h.opts.Simulate == nil || before == nil {
		return nil, nil
	}
	if days > replayDays {
		return nil, invalid("replay_days", "replay_days must be at most %d", replayDays)
	}
	select {
	case h.replaying <- struct{}{}:
		defer func() { <-h.replaying }()
	default:
		return nil, wire.RateLimited("Another replay is running. Try again when it has finished", time.Second)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), replayTime)
	defer cancel()
	out := &Replay{Days: days, Users: []simulate.Line{}, Shadow: []simulate.ShadowLine{}}
	trace, err := h.lastCalls(ctx, before.ID, c.start, out)
	if err != nil || trace.Len() == 0 {
		return out, err
	}
	for _, o := range []*settings.Org{before, after} {
		report, err := h.replayed(ctx, trace, o)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, wire.BadRequest("replay_days", "too_long", "The replay takes longer than %s. Use fewer days",
				replayTime)
		}
		if err != nil {
			return nil, err
		}
		if o == before {
			out.Before = report.Total
			continue
		}
		out.After, out.Shadow = report.Total, append(out.Shadow, report.Shadow...)
		for _, l := range report.Lines {
			if l.HeldBackCalls() > 0 {
				out.Users = append(out.Users, l)
			}
		}
	}
	return out, nil
}

// replayed decides the calls with o replacing the org of the same id.
func (h *replayer) replayed(ctx context.Context, trace *simulate.Trace, o *settings.Org) (simulate.Report, error) {
	orgs := slices.Clone(h.opts.Effective().Orgs)
	for i := range orgs {
		if orgs[i].ID == o.ID {
			orgs[i] = *o
		}
	}
	policy, err := h.opts.Simulate(orgs)
	if err != nil {
		return simulate.Report{}, err
	}
	result, err := simulate.Run(ctx, trace, policy, simulate.Options{})
	if err != nil {
		return simulate.Report{}, err
	}
	return result.Report([]string{"user"})
}

// lastCalls reads the newest calls of the last days.
func (h *replayer) lastCalls(ctx context.Context, org string, now time.Time, out *Replay) (*simulate.Trace, error) {
	r := simulate.NewReader()
	since, err := ledger.Newest{
		Books: h.opts.Budget.Ledger, Org: org, Span: ledger.Span{From: now.AddDate(0, 0, -out.Days), To: now},
		Most: replayCalls,
	}.Each(ctx, r.Entry)
	if err != nil {
		return nil, err
	}
	out.Cut = !since.IsZero()
	return r.Trace()
}

// Replay is how the org's last calls would have fared.
type Replay struct {
	Days   int                   `json:"days"`
	Cut    bool                  `json:"cut"` // only the newest calls were replayed
	Before simulate.Line         `json:"before"`
	After  simulate.Line         `json:"after"`
	Users  []simulate.Line       `json:"users"` // under the declared settings: users with refused or abandoned calls
	Shadow []simulate.ShadowLine `json:"shadow"`
}
