package guard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/quota"
)

// vendors maps vendors of the price catalogue to OpenTelemetry's names where they differ.
var vendors = map[string]string{
	"google": "gcp.gemini", "mistral": "mistral_ai", "x-ai": "x_ai",
	"moonshotai": "moonshot_ai",
}

func (p *Plan) traceHold(span tracing.Span, err error) {
	if !span.On() {
		return
	}
	span.Int("llmguard.hold.cost_nano_usd", int64(p.First.Cost))
	span.Int("llmguard.hold.tokens", p.First.Tokens)
	var exceeded *budget.ExceededError
	switch {
	case err == nil:
	case errors.As(err, &exceeded):
		cause := (&Refusal{ExceededError: exceeded}).Cause()
		span.String("llmguard.refused_by", cause.Public())
		span.Int("llmguard.wait_ms", exceeded.Binding.Wait.Milliseconds())
	default:
		span.Fail("store_unavailable")
	}
	span.End()
}

// traceCall begins the span of the provider's part of a call.
func (c *Call) traceCall(ctx context.Context) (context.Context, tracing.Span) {
	if !tracing.On(ctx) {
		return ctx, tracing.Span{}
	}
	t := c.Plan.Target
	operation := cmp.Or(c.Plan.Request.Endpoint.Traits().Operation, string(c.Plan.Request.Endpoint))
	ctx, span := tracing.StartRequest(ctx, operation+" "+t.Model)
	span.String("gen_ai.operation.name", operation)
	span.String("gen_ai.provider.name", c.vendor())
	span.String("gen_ai.request.model", t.Model)
	if c.Plan.Request.OutputLimit > 0 {
		span.Int("gen_ai.request.max_tokens", c.Plan.Request.OutputLimit)
	}
	span.String("server.address", t.Provider.BaseURL.Hostname())
	port, _ := strconv.ParseInt(t.Provider.BaseURL.Port(), 10, 64)
	if port == 0 {
		port = map[string]int64{"http": 80, "https": 443}[t.Provider.BaseURL.Scheme]
	}
	span.Int("server.port", port)
	span.String("llmguard.call_id", c.ID)
	span.Int("llmguard.attempt", int64(c.Attempt))
	span.String("llmguard.org", c.Plan.Caller.Org.ID)
	span.String("llmguard.user", c.Plan.Caller.User)
	span.String("llmguard.provider", t.Provider.ID)
	span.String("llmguard.pool", t.Pool)
	span.Bool("llmguard.stream", c.Plan.Request.Stream)
	return ctx, span
}

// vendor returns the provider's name in OpenTelemetry's conventions.
func (c *Call) vendor() string {
	t, vendor := c.Plan.Target.Provider, c.Plan.Price.Provider
	return cmp.Or(t.Dialect.System(), vendors[vendor], vendor, t.ID)
}

// traceEnd ends that span with the result of the call, which began at start.
func (c *Call) traceEnd(span tracing.Span, start time.Time) {
	if !span.On() {
		return
	}
	r := &c.Result
	span.String("gen_ai.response.model", r.Model)
	span.Int("gen_ai.usage.input_tokens", r.Usage.Input)
	span.Int("gen_ai.usage.output_tokens", r.Usage.Output)
	if r.Usage.CachedInput > 0 {
		span.Int("gen_ai.usage.cache_read.input_tokens", r.Usage.CachedInput)
	}
	if r.Status != 0 {
		span.Int("http.response.status_code", int64(r.Status))
	}
	if r.FirstByte > 0 {
		span.Event("answer begins", start.Add(r.FirstByte))
	}
	span.String("llmguard.outcome", string(r.Outcome))
	span.Int("llmguard.cost_nano_usd", int64(r.Cost))
	span.Bool("llmguard.estimated", r.Estimated)
	span.String("llmguard.upstream_id", r.UpstreamID)
	switch {
	case r.Status >= http.StatusBadRequest:
		span.Fail(strconv.Itoa(r.Status))
	case r.Outcome != Completed && r.Outcome != NoUsage || r.Failed:
		span.Fail(string(r.Outcome))
	}
	span.End()
}

func (c *Call) traceSettle(ctx context.Context) {
	_, c.settling = tracing.Start(ctx, "settle")
	if c.settling.On() {
		c.settling.String("llmguard.outcome", string(c.Result.Outcome))
		c.settling.Int("llmguard.cost_nano_usd", int64(c.Result.Cost))
		c.settling.Bool("llmguard.void", c.Result.void())
	}
}

// traceTake begins the span of taking a provider's quota. The returned function ends it.
func traceTake(ctx context.Context, pool string, tokens int64) (context.Context, func(error)) {
	ctx, span := tracing.Start(ctx, "take quota")
	if !span.On() {
		return ctx, func(error) {}
	}
	span.String("llmguard.pool", pool)
	span.Int("llmguard.quota_tokens", tokens)
	return ctx, func(err error) {
		var busy *quota.BusyError
		switch {
		case errors.As(err, &busy):
			span.Int("llmguard.wait_ms", busy.Wait.Milliseconds())
		case err != nil:
			span.Fail("store_unavailable")
		}
		span.Bool("llmguard.granted", err == nil)
		span.End()
	}
}
