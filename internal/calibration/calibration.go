// Package calibration learns from settled calls how far estimates were off.
//
// Input: for models whose tokenizer is not public, the tokens billed against the
// tokens estimated, by org, model version and class of text; the mean is what to
// expect and a high quantile is what to hold. Until there is evidence both are
// the table in package tokenizer, and it fades as evidence comes. Only an org's
// own calls lower what it holds; those of other orgs can raise it while its own
// are few. No hold is below the estimate itself. OpenAI's own models are observed
// and never scaled.
//
// Output: how many tokens calls produce, by org, user and model.
//
// Observations are gathered in the process, written to Redis in batches and read
// back, so that all processes know the same. Nothing here is money: a lost batch
// costs a few observations, and without Redis the last state known stays in
// force. The package does not count text and does not decide what is charged.
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
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/tokenizer"
)

// Options tune a Calibration. The zero value is usable.
type Options struct {
	// Refresh is how often observations are written and those of other
	// processes read. Default 10 s.
	Refresh time.Duration
	// Cap bounds the learned factors, per mille. Default 3000: an org whose
	// texts are made to tokenize badly raises the holds of others no further.
	// The lower bound of a hold is 1000.
	Cap int
	// Life is how long an entry lives without observations. Default 30 days.
	Life time.Duration
	// Inputs and Outputs bound the entries kept for each; the longest unused go
	// first. Default 10,000 each.
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

// Calibration is safe for concurrent use. A nil one knows only the priors and
// observes nothing.
type Calibration struct {
	rdb     redis.UniversalClient
	opts    Options
	metrics *metrics
	now     func() any // time given to scripts: empty, except in tests

	state   atomic.Pointer[snapshot]
	priors  priors
	pending pending

	syncing sync.Mutex // guards what follows
	batches batches
	inputs  table
	outputs table
	failing bool
}

// New returns a Calibration that knows the priors until Run or Sync has read
// what was learned before.
func New(rdb redis.UniversalClient, o Options) *Calibration {
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

// Run writes and reads until ctx ends, and writes once more then.
func (c *Calibration) Run(ctx context.Context) error {
	tick := time.NewTicker(c.opts.Refresh)
	defer tick.Stop()
	for {
		c.report(ctx, c.syncFor(ctx))
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := c.syncFor(context.WithoutCancel(ctx)); err != nil {
				c.opts.Log.Warn("the last observations of usage are lost", "err", err)
			}
			return ctx.Err()
		}
	}
}

// syncTime bounds one Sync of Run.
const syncTime = 3 * time.Second

func (c *Calibration) syncFor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	return c.Sync(ctx)
}

// report logs when syncing begins to fail and when it works again.
func (c *Calibration) report(ctx context.Context, err error) {
	switch {
	case err != nil && !c.failing && ctx.Err() == nil:
		c.opts.Log.Warn("calibration is not shared now; what is known stays in force", "err", err)
	case err == nil && c.failing:
		c.opts.Log.Info("calibration is shared again")
	}
	c.failing = err != nil
}

// Tokens returns the input tokens to expect and to hold for a text of an org
// estimated at so many.
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

// priors remembers the priors of models never observed: names take longer to
// parse than to look up.
type priors struct {
	mu    sync.Mutex // of writers
	known atomic.Pointer[map[string]factors]
}

// mostPriors bounds the names remembered.
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

// Output returns the tokens that a user's calls to a model produce, expected
// and as few calls exceed. Without enough calls of the user those of the org
// count, and then those of all orgs; 0 and 0 mean that nothing is known. It does
// no I/O and does not allocate.
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
