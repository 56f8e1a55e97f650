package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// maxProblems bounds the list of problems of an input file, maxProblemBytes its size in
// Redis.
const (
	maxProblems     = 100
	maxProblemBytes = 32 << 10
)

// maxBlank bounds the blank lines of an input file, which later reads skip in one go.
const maxBlank = 50_000

// validation reads the whole input of a turn's batch, once, before any line of it runs.
type validation struct {
	turn *turn
	r    *Runner
}

// check accumulates what is known of an input file while it is read.
type check struct {
	problems []Problem
	lines    int64 // requests
	blank    int
	last     int // number of the last line with a request
	model    string
	seen     map[[16]byte]int // lines by the hash of their custom_id
	least    pricing.Nano     // what the input alone costs
	most     pricing.Nano     // what is held for all lines together
	limits   []budget.Limit
	pool     string
	// caller is the caller as which the lines run; Batched if the target's provider
	// runs the batch.
	caller guard.Caller
	target providers.Target
	// labels are those of the last line; mixed means that lines have different ones.
	labels ledger.Labels
	mixed  bool
}

// validate reads the input file to its end, in constant memory except for one hash per
// line, and lets the batch begin or fail.
func (v *validation) validate(ctx context.Context) error {
	c := &check{seen: make(map[[16]byte]int)}
	var err error
	c.caller, err = v.turn.caller()
	if err != nil {
		c.add(0, problem("org_gone", "", err.Error()))
		return v.fail(ctx, c.problems)
	}
	if err := v.readAll(ctx, c); err != nil {
		if !errors.Is(err, files.ErrNotFound) {
			return err
		}
		c.add(0, problem("file_not_found", "input_file_id", "The input file no longer exists."))
	}
	if c.lines == 0 && len(c.problems) == 0 {
		c.add(0, problem("empty_file", "", "The file is empty. It must contain at least one request."))
	}
	if len(c.problems) > 0 {
		return v.fail(ctx, c.problems)
	}
	return v.begin(ctx, c)
}

// readAll checks every line, up to the maximum number of problems.
func (v *validation) readAll(ctx context.Context, c *check) error {
	for at := (position{}); len(c.problems) < maxProblems; {
		r, err := v.turn.open(ctx, at)
		if err != nil {
			return err
		}
		over, err := v.readPart(ctx, c, r)
		if over || err != nil {
			return err
		}
		at = r.at
		if err := v.turn.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readPart checks a page of lines. over means that no more lines have to be checked.
func (v *validation) readPart(ctx context.Context, c *check, r *lineReader) (over bool, err error) {
	for n, from := 0, r.at.off; n < pageLines && r.at.off-from < pageBytes && len(c.problems) < maxProblems; n++ {
		line, err := r.read()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		if err == nil && blank(line) {
			c.blank++
			if c.blank > maxBlank {
				c.add(r.at.line, problem("invalid_json_line", "", fmt.Sprintf("The file has more than %d blank lines.", maxBlank)))
				return true, nil
			}
			continue
		}
		if errors.Is(err, errLong) {
			c.add(r.at.line, problem("line_too_large", "", fmt.Sprintf("The line has more than %d bytes.", v.r.opts.MaxLine)))
			continue
		}
		if err != nil {
			return true, fmt.Errorf("batch: read %s: %w", v.turn.b.Input, err)
		}
		c.lines++
		if c.lines > int64(v.r.s.maxLines()) {
			c.add(r.at.line, problem("too_many_tasks", "",
				fmt.Sprintf("The file has more than %d requests.", v.r.s.maxLines())))
			return true, nil
		}
		if err := v.check(ctx, c, line, r.at.line); err != nil {
			return true, err
		}
	}
	return false, nil
}

// check checks one line and adds up what it may cost. The error comes from Redis.
func (v *validation) check(ctx context.Context, c *check, line []byte, number int) error {
	req, wrong := parse(line, v.turn.b.Endpoint, v.r.opts.Scan)
	if wrong != nil {
		c.add(number, wrong)
		return nil
	}
	c.last = number
	wrong = once(c.seen, req.customID, number)
	if wrong != nil {
		c.add(number, wrong)
		return nil
	}
	if c.model == "" {
		c.model = req.model
		target, byProvider, err := v.r.opts.Guard.Plans.BatchTarget(c.caller, v.turn.b.Endpoint, c.model)
		if err == nil { // otherwise the line reports it
			c.target, c.caller.Batched = target, byProvider
		}
	}
	wrong = sameModel(c.model, req.model)
	if wrong != nil {
		c.add(number, wrong)
		return nil
	}
	plans := v.r.opts.Guard.Plans
	req.parsed.Betas = wire.Betas(v.turn.b.Header)
	caller, err := plans.LabelLine(ctx, c.caller, v.turn.b.Labels, req.parsed)
	var plan *guard.Plan
	if err == nil {
		plan, err = plans.PrepareKept(ctx, caller, req.parsed)
	}
	if errors.Is(err, budget.ErrUnavailable) {
		return err
	}
	if err != nil {
		c.add(number, problemOf(err, "invalid_request"))
		return nil
	}
	if c.pool != "" && caller.Labels != c.labels {
		c.mixed = true
	}
	c.limits, c.pool, c.labels = plan.Limits, plan.Target.Pool, caller.Labels
	c.most, c.least = c.most+plan.Max.Cost, c.least+plan.Least()
	return nil
}

func (c *check) add(line int, p *Problem) {
	if line > 0 {
		p.Line = &line
	}
	c.problems = append(c.problems, *p)
}

// problemText encodes the list for its record, shortened to the maximum size.
func problemText(problems []Problem) ([]byte, error) {
	for {
		text, err := json.Marshal(problems)
		if err != nil || len(text) <= maxProblemBytes || len(problems) == 1 {
			return text, err
		}
		problems = problems[:(len(problems)+1)/2]
	}
}

// fail ends a batch whose input file is not acceptable.
func (v *validation) fail(ctx context.Context, problems []Problem) error {
	text, err := v.fitting(ctx, problems)
	if err != nil {
		return err
	}
	st := step{Status: Failed, Stamp: []string{stampFailed}, Set: map[string]string{"problems": string(text)}}
	if err := v.turn.write(ctx, st, Validating); err != nil {
		return err
	}
	v.r.metrics.ended.WithLabelValues(string(Failed)).Inc()
	return nil
}

// begin lets a checked batch run if the budgets can cover it.
func (v *validation) begin(ctx context.Context, c *check) error {
	short, err := v.shortfall(ctx, c, c.caller)
	if err != nil {
		return err
	}
	if short != nil && (short.certain || v.r.opts.RefuseOverBudget) {
		c.add(0, problem("insufficient_quota", "", short.text))
		return v.fail(ctx, c.problems)
	}
	st := step{Status: InProgress, Stamp: []string{stampStarted}, Set: map[string]string{
		"model": c.model, "pool": c.pool, "total": strconv.FormatInt(c.lines, 10), "last_line": strconv.Itoa(c.last),
		"estimate": strconv.FormatInt(int64(c.most), 10),
	}}
	if c.caller.Batched {
		st.set("provider", c.target.Provider.ID)
		st.set("upstream", c.target.Model)
	}
	if short != nil {
		text, err := json.Marshal([]string{short.text})
		if err != nil {
			return fmt.Errorf("batch: warnings: %w", err)
		}
		st.set("warnings", string(text))
	}
	if err := v.turn.write(ctx, st, Validating); err != nil {
		return err
	}
	b := v.turn.b
	b.Model, b.Total, b.Estimate = c.model, c.lines, int64(c.most)
	b.lastLine, b.pool = c.last, c.pool
	if c.caller.Batched {
		b.provider, b.upstream = c.target.Provider.ID, c.target.Model
	}
	return nil
}
