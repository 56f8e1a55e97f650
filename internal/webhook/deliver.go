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
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/llmguard/llmguard/queue"
)

const (
	redisTime  = 30 * time.Second // for what a delivery writes to Redis
	answerMost = 16 << 10         // bytes of an answer that are read, and of its head
	endTime    = 10 * time.Second // for deliveries under way at shutdown
)

// Run delivers until ctx is done, then ends what is under way within ten
// seconds and returns nil; what does not end by then is delivered by another
// process, perhaps a second time. It survives Redis being away. Until a
// target is configured it only waits.
func (s *Sender) Run(ctx context.Context) error {
	s.metrics.scrapeIn(ctx)
	select {
	case <-ctx.Done():
		return nil
	case <-s.wanted:
	}
	server := queue.Server(ctx, s.rdb, s.log, queueName, asynq.Config{
		Concurrency:              s.opts.Concurrency,
		DelayedTaskCheckInterval: s.retries,
		ShutdownTimeout:          endTime,
		RetryDelayFunc:           s.retryDelay,
		IsFailure:                func(err error) bool { return !postponed(err) },
	})
	if err := server.Start(asynq.HandlerFunc(s.handle)); err != nil {
		return fmt.Errorf("webhook: start asynq: %w", err)
	}
	<-ctx.Done()
	server.Shutdown()
	s.http.CloseIdleConnections()
	return nil
}

// again asks asynq for another attempt after a delay.
type again struct {
	after    time.Duration
	postpone bool // nothing was tried: it does not count
	err      error
}

func (e *again) Error() string { return e.err.Error() }
func (e *again) Unwrap() error { return e.err }

var errPostponed = errors.New("webhook: the target has enough to do")

func postponed(err error) bool {
	var a *again
	return errors.As(err, &a) && a.postpone
}

// retryDelay is how long asynq waits before the next attempt.
func (s *Sender) retryDelay(n int, err error, _ *asynq.Task) time.Duration {
	if a, ok := errors.AsType[*again](err); ok {
		return a.after
	}
	return s.backoff(n)
}

// The first pause is 5 to 10 s and each next one twice as long, up to 3 to 6 h.
const (
	firstPause   = 10 * time.Second
	longestPause = 6 * time.Hour
)

// backoff is the pause after so many failures.
func backoff(failures int) time.Duration {
	d := min(firstPause<<min(failures, 16), longestPause)
	return d/2 + rand.N(d/2)
}

// handle makes one attempt.
func (s *Sender) handle(ctx context.Context, task *asynq.Task) error {
	var d delivery
	if err := json.Unmarshal(task.Payload(), &d); err != nil {
		s.log.ErrorContext(ctx, "webhook delivery cannot be read and is dropped", "err", err)
		return nil
	}
	failures, _ := asynq.GetRetryCount(ctx)
	t, err := s.find(&d)
	if err != nil {
		return s.bury(ctx, &d, Removed, result{err: err}, failures)
	}
	off, err := s.rdb.HExists(ctx, offKey(d.Org), t.print).Result()
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if off {
		return s.bury(ctx, &d, Disabled, result{err: errors.New("the target has answered 410 to another event")}, failures)
	}
	done, wait := s.pauses.enter(d.Org, t.key, time.Now())
	if wait > 0 {
		return s.later(ctx, &d, &again{after: wait, postpone: true, err: errPostponed}, failures)
	}
	defer done()
	r := s.post(ctx, t, &d)
	return s.conclude(ctx, t, &d, r, failures)
}

// conclude acts on what came of an attempt.
func (s *Sender) conclude(ctx context.Context, t *target, d *delivery, r result, failures int) error {
	var refused *RefusedError
	outcome := "failed"
	switch {
	case r.err == nil && r.status/100 == 2:
		s.metrics.attempts.WithLabelValues("delivered").Inc()
		s.metrics.took.Observe(max(time.Since(time.Unix(d.Created, 0)).Seconds(), 0))
		return nil
	case errors.As(r.err, &refused):
		outcome = "refused"
	case r.status == http.StatusGone:
		outcome = "gone"
	}
	s.metrics.attempts.WithLabelValues(outcome).Inc()
	s.log.WarnContext(ctx, "webhook not delivered", "org", d.Org, "event", d.Event, "host", t.url.Host,
		"attempt", failures+1, "status", r.status, "err", r.err)
	switch outcome {
	case "refused":
		return s.bury(ctx, d, Refused, r, failures+1)
	case "gone":
		if err := s.disable(ctx, d.Org, t); err != nil {
			return err
		}
		return s.bury(ctx, d, Gone, r, failures+1)
	}
	s.pauses.rest(t.key, time.Now().Add(r.retryAfter))
	return s.later(ctx, d, &again{after: max(s.backoff(failures), r.retryAfter), err: r.problem(), postpone: false},
		failures+1)
}

// later asks for another attempt, unless that would be too late.
func (s *Sender) later(ctx context.Context, d *delivery, a *again, attempts int) error {
	if time.Now().Add(a.after).Unix() < d.Until {
		return a
	}
	return s.bury(ctx, d, Exhausted, result{err: a.err}, attempts)
}

// find returns where a delivery goes by the configuration as it is now.
func (s *Sender) find(d *delivery) (*target, error) {
	if d.URL != "" {
		return s.requested(d.Org, d.URL)
	}
	if o := s.org(d.Org); o != nil {
		for _, t := range o.targets {
			if t.key == d.Target {
				return t, nil
			}
		}
	}
	return nil, errors.New("the target is not in the configuration any more")
}

// httpClient is what an attempt is made with; it follows no redirect.
type httpClient struct{ *http.Client }

func newHTTPClient(d *dialer, o Options) httpClient {
	return httpClient{&http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // an environment must not lead past the check of addresses
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

// result is what came of an attempt.
type result struct {
	status     int // 0: no answer
	retryAfter time.Duration
	err        error
}

// problem says in one line what was wrong.
func (r result) problem() error {
	if r.err != nil {
		return r.err
	}
	return fmt.Errorf("the target answered %d", r.status)
}

// post makes the request. The answer's body is read only so far that the
// connection can be used again.
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
		if where, ok := errors.AsType[*url.Error](err); ok { // it names the URL, which may carry a secret
			err = where.Err
		}
		return result{err: err}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, answerMost)
	return result{status: resp.StatusCode, retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
}

// retryAfterMost bounds what a target may ask for.
const retryAfterMost = 24 * time.Hour

// retryAfter reads seconds or a date.
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

// pauses keep one org's targets from taking all places, and let a target rest
// that asked for it.
type pauses struct {
	mu    sync.Mutex
	most  int                  // deliveries of one org at once
	busy  map[string]int       // by org
	until map[string]time.Time // by target
}

// enter takes a place, or returns how long to wait before asking again.
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

// rest lets a target alone until then.
func (p *pauses) rest(target string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.until[target]) && until.After(time.Now()) {
		p.until[target] = until
	}
}
