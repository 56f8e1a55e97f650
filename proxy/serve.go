package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/wire"
)

// metered serves an endpoint that costs money: live when the call fits, from
// the queue when it does not, refused when it never can.
func (s *Server) metered(ep wire.Endpoint) func(*exchange, *http.Request, string) error {
	return func(x *exchange, r *http.Request, _ string) error {
		body, err := s.readBody(x, r)
		if err != nil {
			return err
		}
		req, err := wire.Scan(ep, body, s.opts.Scan)
		if err != nil {
			return err
		}
		plan, err := s.guard.Prepare(x.caller, req)
		if err != nil {
			return err
		}
		x.plan = plan
		wish, err := parseWish(r.Header)
		if err != nil {
			return err
		}
		if wish.async && !plan.Caller.Org.RefuseOverLimit { // RFC 7240: a preference may be ignored
			return s.accept(x, r, plan)
		}
		err = s.live(x, r, plan)
		if !waits(err) {
			return err
		}
		if plan.Caller.Org.RefuseOverLimit {
			return err
		}
		return s.wait(x, r, plan, wish, err)
	}
}

// readBody reads the whole body within the limits of size and time.
func (s *Server) readBody(x *exchange, r *http.Request) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, wire.UnsupportedEncoding(enc)
	}
	if r.ContentLength > s.opts.MaxBody {
		return nil, wire.TooLarge(s.opts.MaxBody)
	}
	_ = x.control.SetReadDeadline(time.Now().Add(s.opts.ReadBody)) // not supported by test recorders
	body, err := readAll(http.MaxBytesReader(x.ResponseWriter, r.Body, s.opts.MaxBody), r.ContentLength)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, wire.TooLarge(s.opts.MaxBody)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			x.slow = true
			return nil, &wire.Error{
				Status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "body_too_slow",
				Message: fmt.Sprintf("The request body did not arrive within %s", s.opts.ReadBody), Header: http.Header{"Connection": {"close"}}, Err: err,
			}
		}
		return nil, &wire.Error{
			Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "body_unreadable",
			Message: "The request body could not be read to its end", Header: http.Header{"Connection": {"close"}}, Err: err,
		}
	}
	_ = x.control.SetReadDeadline(time.Time{})
	return body, nil
}

// firstRead bounds the memory a Content-Length alone can claim.
const firstRead = 1 << 20

func readAll(r io.Reader, length int64) ([]byte, error) {
	if length < 0 || length > firstRead {
		return io.ReadAll(r)
	}
	buf := make([]byte, length)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	return buf, nil
}

// live holds, takes quota and forwards. The errors for which waits is true
// leave nothing charged, nothing sent and nothing written.
func (s *Server) live(x *exchange, r *http.Request, plan *guard.Plan) error {
	ctx := r.Context()
	call, err := s.guard.Begin(ctx, plan, x.id, 1, "")
	if err != nil {
		return err
	}
	defer call.End(ctx)
	x.call = call
	err = s.forward(x, r, call)
	var busy *guard.BusyError
	if errors.As(err, &busy) {
		s.blockPool(ctx, plan.Target.Pool, busy.RetryAfter)
	}
	return err
}

// staleTries is how often a call asks for quota again because its grant grew
// stale before the request could be written: this process was too busy.
const staleTries = 3

// forward takes quota and sends the call within the life of the grant.
func (s *Server) forward(x *exchange, r *http.Request, call *guard.Call) error {
	ctx := r.Context()
	for try := 1; ; try++ {
		grant, err := s.take(ctx, call.Plan, x.id)
		if err != nil {
			return unavailable(err)
		}
		err = call.Forward(ctx, x, guard.Forwarding{Header: r.Header, Query: r.URL.RawQuery, Fresh: grant.Fresh})
		s.giveBack(ctx, grant, call.Result.Outcome == guard.Unsent)
		if try == staleTries || !errors.Is(err, providers.ErrStale) {
			return err
		}
	}
}

// take asks for provider quota; Redis has no longer for it than for a hold.
func (s *Server) take(ctx context.Context, plan *guard.Plan, id string) (*queue.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StoreDeadline)
	defer cancel()
	return s.queue.Take(ctx, plan.Target.Pool, id, flow(plan.Caller), plan.Quota)
}

func flow(c guard.Caller) queue.Flow { return queue.Flow{Org: c.Org.ID, User: c.User} }

// giveBack returns the concurrency slot, and the quota when nothing was sent.
func (s *Server) giveBack(ctx context.Context, g *queue.Grant, unused bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.queue.Give(ctx, g, unused); err != nil {
		s.log.Warn("quota grant not given back; its lease frees it", "error", err)
	}
}

// defaultBlock is how long a pool rests after a 429 or 503 that does not say.
const defaultBlock = time.Second

func (s *Server) blockPool(ctx context.Context, pool string, d time.Duration) {
	if d <= 0 {
		d = defaultBlock
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.queue.Block(ctx, pool, d); err != nil {
		s.log.Warn("pool not blocked after the provider refused", "pool", pool, "error", err)
	}
}

// waits reports whether a call that failed so may still run from the queue.
func waits(err error) bool {
	var exceeded *guard.Refusal
	if errors.As(err, &exceeded) {
		return !exceeded.Final()
	}
	var noQuota *queue.BusyError
	if errors.As(err, &noQuota) {
		return !noQuota.Never
	}
	var busy *guard.BusyError
	return errors.As(err, &busy) || errors.Is(err, providers.ErrStale)
}
