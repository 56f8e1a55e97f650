package admin

import (
	"context"
	stdjson "encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/internal/wire"
)

// Reloaded is the result of a reload of the configuration file.
type Reloaded = tenants.Reloaded

type systemHandler struct {
	base
	jobs    *jobHandler
	usage   *usageHandler
	live    live
	openAPI func() ([]byte, error)
}

// reload affects this process only, because each process reads its own copy of the file.
func (h *systemHandler) reload(c *call) (any, error) {
	if h.opts.Reload == nil {
		return nil, wire.BadRequest("", "no_config_file",
			"This process was started without a configuration file, so there is nothing to reload")
	}
	before := fileState{Hash: h.opts.File().Hash}
	done, err := h.opts.Reload(c.r.Context())
	e := c.entry("", "")
	if err != nil {
		e.Action = "config.reload_refused"
		if auditErr := h.audit.commit(c, e, before, nil); auditErr != nil {
			return nil, auditErr
		}
		const text = "The reload failed and the previous configuration stays in use: %v"
		return nil, wire.BadRequest("", "config_refused", text, err)
	}
	return done, h.audit.commit(c, e, before, done)
}

// reloadAll has all processes of the deployment reload, this one included.
func (h *systemHandler) reloadAll(c *call) (any, error) {
	done, err := h.opts.Tenants.ReloadAll(c.r.Context())
	if err != nil {
		return nil, err
	}
	e := c.entry("", "")
	if slices.ContainsFunc(done, func(p tenants.ReloadedProcess) bool { return p.Error != "" }) {
		e.Action = "config.reload_refused"
	}
	return listOf(done), h.audit.commit(c, e, nil, done)
}

type fileState struct {
	Hash string `json:"hash"`
}

// listCalibration returns what was learned about models without a public tokenizer.
func (h *systemHandler) listCalibration(c *call) (any, error) {
	rows, err := h.opts.Calibration(c.r.Context())
	return listOf(rows), err
}

// live holds the sampler of current activity.
type live struct {
	turn    chan struct{} // holds a token while a request samples
	sampler *top.Sampler  // nil if unused for a while
	idle    *time.Timer   // drops the sampler with the calls that it remembers
}

// enter waits for its turn to sample.
func (l *live) enter(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *live) leave() { <-l.turn }

// forget drops the sampler; the next one reads the last minute again.
func (l *live) forget() {
	l.turn <- struct{}{}
	l.sampler = nil
	l.leave()
}

func (h *systemHandler) top(c *call) (any, error) {
	q, err := h.jobs.queue(c)
	if err != nil {
		return nil, err
	}
	ids, err := h.dir.wantedOrgs(c)
	if err != nil {
		return nil, err
	}
	from, err := h.grouped(c)
	if err != nil {
		return nil, err
	}
	from.Queue, from.Orgs = q, map[string]*guard.Org{}
	inForce := h.opts.Policy().Orgs
	for _, id := range ids {
		if inForce[id] != nil {
			from.Orgs[id] = inForce[id]
		}
	}
	if err := h.live.enter(c.r.Context()); err != nil {
		return nil, wire.ServiceUnavailable("Too many requests for the live view are in progress. Try again",
			time.Second, err)
	}
	defer h.live.leave()
	if h.live.sampler == nil {
		h.live.sampler = top.NewSampler(h.opts.Budget)
	}
	if h.live.idle != nil {
		h.live.idle.Stop()
	}
	h.live.idle = time.AfterFunc(top.Span, h.live.forget)
	snap, err := h.live.sampler.Sample(c.r.Context(), from, c.r.URL.Query().Get("user"))
	if err != nil {
		return nil, err
	}
	snap.Stopped, snap.Dimensions = stoppedOrgs(h.opts), h.groupings()
	return snap, nil
}

// grouped returns what a sample is grouped and filtered by: by default the first label, or the model.
func (h *systemHandler) grouped(c *call) (from top.Source, err error) {
	by := c.r.URL.Query().Get("by")
	if by == "" {
		by = "model"
		if first := h.groupings()[0]; strings.HasPrefix(first, ledger.LabelPrefix) {
			by = first
		}
	}
	from.By, err = ledger.DimensionOf(by)
	if err != nil {
		return from, invalid("by", "by: %v", err)
	}
	from.FilterText = strings.Join(c.r.URL.Query()["filter"], " ")
	from.Filter, err = h.usage.filter(c)
	return from, err
}

// groupings lists what a sample can be grouped by: labels first. Orgs and users have lists of their own.
func (h *systemHandler) groupings() []string {
	all := slices.DeleteFunc(h.usage.dimensionNames(), func(d string) bool { return d == "org" || d == "user" })
	slices.SortStableFunc(all, func(a, b string) int { return rankOf(a) - rankOf(b) })
	return all
}

func rankOf(dimension string) int {
	switch {
	case strings.HasPrefix(dimension, ledger.LabelPrefix):
		return 0
	case dimension == ledger.Run:
		return 1
	}
	return 2
}

// Cap is the state of a spend cap. Amounts are in its unit.
type Cap struct {
	Provider  string   `json:"provider" col:"provider;;(all)"` // empty: the whole deployment
	Name      string   `json:"name" col:"name"`
	Metric    string   `json:"metric" col:"metric"`
	Unit      string   `json:"unit"` // nano_usd, tokens or requests
	Mode      string   `json:"mode" col:"mode"`
	Used      int64    `json:"used" col:"used;unit"`
	Held      int64    `json:"held" col:"held;unit"`
	Amount    int64    `json:"amount" col:"amount;unit"`
	Remaining int64    `json:"remaining" col:"left;unit"`
	Reset     *float64 `json:"reset_seconds" col:"resets in;=reset"` // until nothing is used, without further calls; null: never
}

func (h *systemHandler) listCaps(c *call) (any, error) {
	var out []Cap
	for _, one := range h.opts.Policy().Caps {
		statuses, err := h.opts.Budget.PeekCap(c.r.Context(), one)
		if err != nil {
			return nil, err
		}
		for _, s := range statuses {
			v := Cap{
				Provider: one.Provider, Name: s.LimitID, Metric: string(s.Metric), Unit: units[s.Metric], Mode: string(s.Mode),
				Used: s.Used, Held: s.Held, Amount: s.Amount, Remaining: s.Remaining,
			}
			if reset := s.Reset.Seconds(); s.Reset < budget.Endless {
				v.Reset = &reset
			}
			out = append(out, v)
		}
	}
	return listOf(out), nil
}

func (h *systemHandler) document(c *call) (any, error) {
	text, err := h.openAPI()
	return stdjson.RawMessage(text), err
}
