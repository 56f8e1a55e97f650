package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/internal/tasks"
)

const (
	redisTime  = 30 * time.Second // for the Redis writes of a delivery
	answerMost = 16 << 10         // bytes read of a response, and of its header
	endTime    = 10 * time.Second // for deliveries in progress at shutdown
)

// Run delivers until ctx is done, then waits up to ten seconds for deliveries in progress and
// returns nil. What does not finish by then is delivered by another process, perhaps for a
// second time. It survives Redis outages. Until a target is configured it only waits.
func (s *Sender) Run(ctx context.Context) error {
	s.metrics.scrapeIn(ctx)
	select {
	case <-ctx.Done():
		return nil
	case <-s.wanted:
	}
	server := tasks.Server(ctx, s.rdb, s.log, queueName, asynq.Config{
		Concurrency:              s.opts.Concurrency,
		DelayedTaskCheckInterval: s.retries,
		ShutdownTimeout:          endTime,
		RetryDelayFunc:           func(n int, err error, _ *asynq.Task) time.Duration { return s.retryDelay(n, err) },
		IsFailure:                func(err error) bool { return !postponed(err) },
	})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		failures, _ := asynq.GetRetryCount(ctx)
		return s.handle(ctx, task.Payload(), failures)
	}))
	if err != nil {
		return fmt.Errorf("webhook: start asynq: %w", err)
	}
	<-ctx.Done()
	server.Shutdown()
	s.http.CloseIdleConnections()
	return nil
}

// again makes asynq retry after a delay.
type again struct {
	after    time.Duration
	postpone bool // no attempt was made, so it does not count
	err      error
}

func (e *again) Error() string { return e.err.Error() }
func (e *again) Unwrap() error { return e.err }

var errPostponed = errors.New("webhook: too many deliveries to this target are in progress")

func postponed(err error) bool {
	var a *again
	return errors.As(err, &a) && a.postpone
}

// retryDelay returns how long asynq waits before the next attempt.
func (s *Sender) retryDelay(n int, err error) time.Duration {
	if a, ok := errors.AsType[*again](err); ok {
		return a.after
	}
	return s.backoff(n)
}

// The first pause is 5 to 10 s, and each next one twice as long, up to 3 to 6 h.
const (
	firstPause   = 10 * time.Second
	longestPause = 6 * time.Hour
)

// backoff returns the pause after this many failures.
func backoff(failures int) time.Duration {
	d := min(firstPause<<min(failures, 16), longestPause)
	return d/2 + rand.N(d/2)
}

// handle makes one attempt.
func (s *Sender) handle(ctx context.Context, payload []byte, failures int) error {
	var d delivery
	if err := json.Unmarshal(payload, &d); err != nil {
		s.log.ErrorContext(ctx, "unreadable webhook delivery dropped", "err", err)
		return nil
	}
	t, err := s.find(&d)
	if err != nil {
		return s.bury(ctx, &d, Removed, result{err: err}, failures)
	}
	if d.Round == countRound {
		return s.count(ctx, d, t.perHour)
	}
	off, err := s.rdb.HExists(ctx, offKey(d.Org), t.print).Result()
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if off {
		return s.bury(ctx, &d, Disabled, result{err: errors.New("the target answered 410 to another event")}, failures)
	}
	done, wait := s.pauses.enter(d.Org, t.key, time.Now())
	if wait > 0 {
		return s.later(ctx, &d, &again{after: wait, postpone: true, err: errPostponed}, failures)
	}
	defer done()
	r := s.post(ctx, t, &d)
	return s.conclude(ctx, t, &d, r, failures)
}

// conclude handles the result of an attempt.
func (s *Sender) conclude(ctx context.Context, t *target, d *delivery, r result, failures int) error {
	var refused *RefusedError
	outcome, why := "failed", Reason("")
	switch {
	case r.err == nil && r.status/100 == 2:
		s.metrics.attempts.WithLabelValues("delivered").Inc()
		s.metrics.took.Observe(max(time.Since(time.Unix(d.Created, 0)).Seconds(), 0))
		return nil
	case errors.As(r.err, &refused):
		outcome, why = "refused", Refused
	case r.status == http.StatusGone:
		outcome, why = "gone", Gone
	}
	s.metrics.attempts.WithLabelValues(outcome).Inc()
	s.log.WarnContext(ctx, "webhook not delivered", "org", d.Org, "event", d.Event, "host", t.url.Host,
		"attempt", failures+1, "status", r.status, "err", r.err)
	if why == Gone {
		if err := s.disable(ctx, d.Org, t); err != nil {
			return err
		}
	}
	if why != "" {
		return s.bury(ctx, d, why, r, failures+1)
	}
	s.pauses.rest(t.key, time.Now().Add(r.retryAfter))
	return s.later(ctx, d, &again{after: max(s.backoff(failures), r.retryAfter), err: r.problem(), postpone: false},
		failures+1)
}

// later schedules another attempt, unless that would be too late.
func (s *Sender) later(ctx context.Context, d *delivery, a *again, attempts int) error {
	if time.Now().Add(a.after).Unix() < d.Until {
		return a
	}
	return s.bury(ctx, d, Exhausted, result{err: a.err}, attempts)
}

// find returns the target of a delivery in the current configuration.
func (s *Sender) find(d *delivery) (*target, error) {
	if d.URL != "" {
		return s.requested(d.Org, d.URL)
	}
	if o := s.org(d.Org); o != nil {
		if i := slices.IndexFunc(o.targets, func(t *target) bool { return t.key == d.Target }); i >= 0 {
			return o.targets[i], nil
		}
	}
	return nil, errors.New("the target is no longer configured")
}

// httpClient makes the attempts; it does not follow redirects.
type httpClient struct{ *http.Client }

func newHTTPClient(d *dialer, o Options) httpClient {
	return httpClient{&http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy from the environment would bypass the address check
			DialContext:            d.dial,
			TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    dialTime,
			MaxResponseHeaderBytes: answerMost,
			IdleConnTimeout:        10 * time.Second,
			MaxIdleConns:           o.Concurrency,
			MaxIdleConnsPerHost:    max(o.Concurrency/4, 1),
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// result is the result of an attempt.
type result struct {
	status     int // 0: no response
	retryAfter time.Duration
	err        error
}

// problem describes the failure in one line.
func (r result) problem() error {
	if r.err != nil {
		return r.err
	}
	return fmt.Errorf("the target answered %d", r.status)
}

// post sends the request. It reads only as much of the response body as is needed to reuse the
// connection.
func (s *Sender) post(ctx context.Context, t *target, d *delivery) result {
	body, err := d.body(t)
	if err != nil {
		return result{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return result{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "llmguard")
	if len(t.secrets) > 0 {
		sign(req.Header, t.secrets, d.Event, time.Now(), body)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if where, ok := errors.AsType[*url.Error](err); ok { // it contains the URL, which may be secret
			err = where.Err
		}
		return result{err: err}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, answerMost)
	return result{status: resp.StatusCode, retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
}

// retryAfterMost limits the Retry-After of a target.
const retryAfterMost = 24 * time.Hour

// retryAfter parses seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	seconds, err := strconv.ParseInt(text, 10, 32)
	d := time.Duration(seconds) * time.Second
	if err != nil {
		at, err := http.ParseTime(text)
		if err != nil {
			return 0
		}
		d = at.Sub(now)
	}
	return min(max(d, 0), retryAfterMost)
}

// pauses keeps one org's targets from taking all slots, and pauses targets that requested it.
type pauses struct {
	mu    sync.Mutex
	most  int                  // maximum concurrent deliveries of one org
	busy  map[string]int       // by org
	until map[string]time.Time // by target
}

// enter takes a slot, or returns how long to wait before trying again.
func (p *pauses) enter(org, target string, now time.Time) (leave func(), wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if till, ok := p.until[target]; ok {
		if rest := till.Sub(now); rest > 0 {
			return nil, rest + rand.N(time.Second)
		}
		delete(p.until, target)
	}
	if p.busy[org] >= p.most {
		return nil, 2*time.Second + rand.N(8*time.Second)
	}
	p.busy[org]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy[org]--
		if p.busy[org] == 0 {
			delete(p.busy, org)
		}
	}, 0
}

// rest pauses a target until a time.
func (p *pauses) rest(target string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.until[target]) && until.After(time.Now()) {
		p.until[target] = until
	}
}
