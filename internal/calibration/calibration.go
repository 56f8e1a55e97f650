// Package calibration learns from settled calls how far estimates were off.
//
// Input: for models without a public tokenizer it learns the ratio of billed to estimated
// tokens, by org, model version and class of text. The mean is the expected ratio, and a high
// quantile is used for holds. Without evidence both come from the table in package tokenizer,
// which loses weight as evidence arrives. Only an org's own calls lower its holds; calls of
// other orgs can raise them while its own are few. No hold is below the estimate itself.
// OpenAI's own models are observed and never scaled.
//
// Output: the number of tokens that calls generate, by org, user and model.
//
// Observations are collected in the process, written to Redis in batches and read back, so that
// all processes know the same. No money depends on their durability: a lost batch costs a few
// observations, and without Redis the last known state stays in use. The package does not count
// text and does not decide what is charged.
package calibration

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/tokenizer"
)

// Options configure a Calibration. The zero value is usable.
type Options struct {
	// Refresh is how often observations are written, and those of other processes read. Default
	// 10 s.
	Refresh time.Duration
	// Cap limits the learned factors, per mille. Default 3000: an org whose texts are crafted
	// to tokenize badly cannot raise the holds of others further. The lower bound of a hold is
	// 1000.
	Cap int
	// Life is how long an entry is kept without observations. Default 30 days.
	Life time.Duration
	// Inputs and Outputs limit the number of entries of each kind; the longest unused are
	// dropped first. Default 10,000 each.
	Inputs, Outputs int

	Log     *slog.Logger          // nil: discarded
	Metrics prometheus.Registerer // nil: not registered
}

func (o Options) withDefaults() Options {
	if o.Refresh <= 0 {
		o.Refresh = 10 * time.Second
	}
	if o.Cap <= 0 {
		o.Cap = 3000
	}
	if o.Life <= 0 {
		o.Life = 30 * 24 * time.Hour
	}
	if o.Inputs <= 0 {
		o.Inputs = 10_000
	}
	if o.Outputs <= 0 {
		o.Outputs = 10_000
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Calibration is safe for concurrent use. A nil Calibration knows only the priors and ignores
// observations.
type Calibration struct {
	rdb     redisconn.DB
	opts    Options
	metrics *metrics
	now     func() any // time passed to scripts; empty except in tests

	state   atomic.Pointer[snapshot]
	priors  priors
	pending pending

	syncing sync.Mutex // guards the fields below
	batches batches
	inputs  table
	outputs table
	failing bool
}

// New returns a Calibration that knows only the priors until Run or Sync has read what was
// learned.
func New(rdb redisconn.DB, o Options) *Calibration {
	o = o.withDefaults()
	c := &Calibration{
		rdb: rdb, opts: o, metrics: newMetrics(o.Metrics), now: func() any { return "" },
		inputs:  table{name: "input", most: o.Inputs},
		outputs: table{name: "output", most: o.Outputs},
	}
	c.batches.process = rand.Text()
	c.state.Store(&snapshot{})
	return c
}

// Run syncs periodically until ctx is done, and once more then.
func (c *Calibration) Run(ctx context.Context) error {
	tick := time.NewTicker(c.opts.Refresh)
	defer tick.Stop()
	for {
		c.report(ctx, c.syncFor(ctx))
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := c.syncFor(context.WithoutCancel(ctx)); err != nil {
				c.opts.Log.Warn("final usage observations lost", "err", err)
			}
			return ctx.Err()
		}
	}
}

// syncTime limits one Sync of Run.
const syncTime = 3 * time.Second

func (c *Calibration) syncFor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	return c.Sync(ctx)
}

// report logs when syncing starts to fail and when it works again.
func (c *Calibration) report(ctx context.Context, err error) {
	switch {
	case err != nil && !c.failing && ctx.Err() == nil:
		c.opts.Log.Warn("calibration sync failed, keeping known values", "err", err)
	case err == nil && c.failing:
		c.opts.Log.Info("calibration sync restored")
	}
	c.failing = err != nil
}

// Tokens returns the input tokens to expect and to hold for an org's text with this estimate.
func (c *Calibration) Tokens(org, model string, class Class, estimated int64) (expected, hold int64) {
	f := c.factors(org, model, class)
	return f.base + perMille(estimated, f.mean), f.base + perMille(estimated, f.hold)
}

// perMille returns n * factor / 1000, rounded up.
func perMille(n int64, factor int) int64 { return (n*int64(factor) + 999) / 1000 }

func (c *Calibration) factors(org, model string, class Class) factors {
	if c == nil {
		return priorOf(model)
	}
	if m := c.state.Load().inputs[model]; m != nil {
		return m.of(org, min(class, classes-1), c.opts.Cap)
	}
	return c.priors.of(model)
}

// priorOf returns the factors without evidence.
func priorOf(model string) factors {
	mean, hold := tokenizer.Multiplier(model)
	return factors{mean: mean, hold: hold}
}

// priors caches the priors of models that were never observed, because parsing a name takes
// longer than looking it up.
type priors struct {
	mu    sync.Mutex // for writers
	known atomic.Pointer[map[string]factors]
}

// mostPriors limits the number of cached names.
const mostPriors = 1000

func (p *priors) of(model string) factors {
	known := p.known.Load()
	if known != nil {
		if f, ok := (*known)[model]; ok {
			return f
		}
	}
	f := priorOf(model)
	if known != nil && len(*known) >= mostPriors {
		return f
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[string]factors{strings.Clone(model): f}
	known = p.known.Load()
	if known != nil {
		maps.Copy(next, *known)
	}
	p.known.Store(&next)
	return f
}

// Output returns the expected output tokens of a user's calls to a model, and a number that few
// calls exceed. If the user has too few calls, it uses those of the org, and then those of all
// orgs; 0 and 0 mean that nothing is known. It does no I/O and does not allocate.
func (c *Calibration) Output(org, user, model string) (expected, high int64) {
	if c == nil {
		return 0, 0
	}
	m := c.state.Load().outputs[model]
	if m == nil {
		return 0, 0
	}
	o := m.produced
	if own := m.orgs[org]; own != nil {
		o = own.produced
		if u, ok := own.users[user]; ok {
			o = u
		}
	}
	return o.expected, o.high
}
