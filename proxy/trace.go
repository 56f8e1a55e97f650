package proxy

import (
	"net/http"
	"strconv"
)

// traced starts the span of a request, as of its arrival. h is the headers of an authenticated
// caller, whose trace it then continues, or nil. It is started once.
func (x *request) traced(r *http.Request, h http.Header) *http.Request {
	if x.server.opts.Tracer == nil || x.spanBegun {
		return r
	}
	ctx, span := x.server.opts.Tracer.Serve(r.Context(), r.Method, h, x.start)
	x.span, x.spanBegun = span, true
	x.request = x.request.WithContext(ctx)
	return r.WithContext(ctx)
}

// traceEnd ends that span with the content of the access record.
func (x *request) traceEnd(status int) {
	if !x.span.On() {
		return
	}
	x.span.Name(x.request.Method + " " + x.route)
	x.span.String("http.request.method", x.request.Method)
	x.span.String("http.route", x.route)
	x.span.Int("http.response.status_code", int64(status))
	x.span.String("llmguard.call_id", x.id)
	if x.caller.Org != nil {
		x.span.String("llmguard.org", x.caller.Org.ID)
		x.span.String("llmguard.user", x.caller.User)
	}
	if x.asked.model != "" {
		x.span.String("gen_ai.request.model", x.asked.model)
	}
	x.span.String("llmguard.refused_by", x.refusing().Cause.Public())
	x.span.String("llmguard.job", x.job)
	if x.replayed {
		x.span.Bool("llmguard.replayed", true)
	}
	if status >= 500 { // lower ones are the caller's fault
		x.span.Fail(strconv.Itoa(status))
	}
	x.span.End()
}
