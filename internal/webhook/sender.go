package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/asynqdriver"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/queue"
)

// Options configure a Sender; only Orgs is required.
type Options struct {
	// Orgs are the orgs' targets, by org id.
	Orgs map[string]Org
	// AllowNetworks are networks that may be dialed although they are not public.
	AllowNetworks []netip.Prefix
	// AllowHTTP are hosts, in lower case, that may be notified without TLS.
	AllowHTTP []string
	// RootCAs verify targets instead of the system's certificate authorities.
	RootCAs *x509.CertPool
	// Resolver resolves hosts; nil means net.DefaultResolver.
	Resolver *net.Resolver
	// ConsoleURL is where administrators reach the console, without its path, for links in
	// messages. Empty: messages name the command instead.
	ConsoleURL string
	// Timeout limits one attempt, including the response. 0 means 15 s.
	Timeout time.Duration
	// GiveUp is how long an event is retried before it becomes a dead letter. 0 means 72 h.
	GiveUp time.Duration
	// Concurrency is the number of concurrent deliveries per process, at most a quarter of them
	// to one org. 0 means 64.
	Concurrency int
	// DeadLetters is how many dead letters are kept per org, and DeadTTL for how long after the
	// newest. 0 means 1,000 and 14 days.
	DeadLetters int
	DeadTTL     time.Duration
	// Log defaults to discarding. Metrics are registered with Metrics unless it is nil.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

func (o *Options) withDefaults() {
	o.Resolver = cmp.Or(o.Resolver, net.DefaultResolver)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.GiveUp = cmp.Or(o.GiveUp, 72*time.Hour)
	o.Concurrency = cmp.Or(o.Concurrency, 64)
	o.DeadLetters = cmp.Or(o.DeadLetters, 1000)
	o.DeadTTL = cmp.Or(o.DeadTTL, 14*24*time.Hour)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// org is an Org with its endpoints as targets.
type org struct {
	Org
	targets []*target
}

// Validate returns the error that New would return.
func (o *Options) Validate() error {
	_, err := o.compile()
	return err
}

// compile parses the orgs' endpoints.
func (o *Options) compile() (map[string]*org, error) {
	out := make(map[string]*org, len(o.Orgs))
	for id, one := range o.Orgs {
		full := &org{Org: one}
		if len(one.Hosts) > 0 && len(one.Secrets) == 0 {
			return nil, fmt.Errorf("webhook: org %s: request_webhooks needs a secret", id)
		}
		for i := range one.Endpoints {
			t, err := o.endpoint(&one.Endpoints[i])
			if err == nil && slices.ContainsFunc(full.targets, func(other *target) bool { return other.key == t.key }) {
				err = errors.New("it is listed twice")
			}
			if err != nil {
				return nil, fmt.Errorf("webhook: org %s: url %d: %w", id, i+1, err)
			}
			full.targets = append(full.targets, t)
		}
		out[id] = full
	}
	return out, nil
}

func (o *Options) endpoint(e *Endpoint) (*target, error) {
	u, err := o.parseURL(e.URL)
	if err != nil {
		return nil, err
	}
	if len(e.Secrets) == 0 && !e.Slack {
		return nil, errors.New("it has no secret")
	}
	t := newTarget(u, e.Secrets, e.Events...)
	t.slack, t.perHour = e.Slack, e.PerHour
	return t, nil
}

// Sender accepts events and, while Run is running, delivers them. Its methods are safe for
// concurrent use, by any number of processes with the same configuration. Errors of Redis are
// returned wrapped.
type Sender struct {
	opts    Options
	orgs    atomic.Pointer[map[string]*org]
	wanted  chan struct{} // closed once any org has targets
	want    sync.Once
	rdb     redisconn.DB
	tasks   asynqdriver.Client
	dialer  *dialer
	http    httpClient
	pauses  pauses
	backoff func(attempt int) time.Duration
	retries time.Duration // interval of polling for deliveries that are due
	metrics *metrics
	log     *slog.Logger
}

// New returns a Sender that uses rdb. It rejects endpoints that cannot be notified and missing
// secrets.
func New(rdb redisconn.DB, o Options) (*Sender, error) {
	o.withDefaults()
	s := &Sender{
		opts: o, wanted: make(chan struct{}), rdb: rdb, tasks: asynqdriver.NewClient(rdb, rdb),
		dialer: newDialer(o.AllowNetworks, o.Resolver), backoff: backoff, retries: time.Second, log: o.Log,
		pauses: pauses{most: max(o.Concurrency/4, 1), busy: map[string]int{}, until: map[string]time.Time{}},
	}
	s.http = newHTTPClient(s.dialer, o)
	if err := s.SetOrgs(o.Orgs); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(o.Metrics, s)
	return s, nil
}

// SetOrgs replaces Options.Orgs. Deliveries to targets that no longer exist become dead
// letters. After an error nothing has changed.
func (s *Sender) SetOrgs(orgs map[string]Org) error {
	o := s.opts
	o.Orgs = orgs
	compiled, err := o.compile()
	if err != nil {
		return err
	}
	s.orgs.Store(&compiled)
	if s.Configured() {
		s.want.Do(func() { close(s.wanted) })
	}
	return nil
}

// org returns the current org with this id, or nil.
func (s *Sender) org(id string) *org { return (*s.orgs.Load())[id] }

// Configured reports whether any org has targets.
func (s *Sender) Configured() bool { return len(s.Orgs()) > 0 }

// Wants reports whether an endpoint of the org receives events of a type.
func (s *Sender) Wants(orgID, typ string) bool {
	o := s.org(orgID)
	return o != nil && slices.ContainsFunc(o.Endpoints, func(e Endpoint) bool { return e.wants(typ) })
}

// delivery is an event for one target: the payload of its task.
type delivery struct {
	Org     string `json:"org"`
	Event   string `json:"event"` // event id
	Type    string `json:"type"`
	Created int64  `json:"created"` // Unix seconds
	Object  string `json:"object"`

	Data json.RawMessage `json:"data,omitempty"`
	Text string          `json:"text,omitempty"`

	Target string `json:"target"`          // key of the endpoint
	URL    string `json:"url,omitempty"`   // if a request named the target
	Until  int64  `json:"until"`           // Unix seconds; then it becomes a dead letter
	Round  string `json:"round,omitempty"` // for a replay, or countRound
	Of     string `json:"of,omitempty"`    // org whose events are counted
}

// id identifies a delivery: the task, and the dead letter that it may become.
func (d *delivery) id() string { return d.Event + "." + d.Target }

const (
	// queueName is the asynq queue of deliveries; no pool can have this name.
	queueName = "llmguard.webhooks"
	taskType  = "delivery"
	// remember is how long a completed delivery is remembered, so that the same event sent
	// again is not delivered again.
	remember = 10 * time.Minute
	// tries is more than the possible number of attempts and postponements, because failed
	// deliveries become dead letters of ours, not of asynq.
	tries = 1_000_000
)

// Send queues an event for every target of the org that wants it, and for the one that it names
// itself. It is idempotent per Event.ID: while a delivery is pending, and for ten minutes after
// it, the same event is not delivered twice. It returns once all deliveries are in Redis; no
// target is contacted. After an error, send the event again.
func (s *Sender) Send(ctx context.Context, orgID string, e Event) error {
	if err := e.validate(); err != nil {
		return err
	}
	o := s.org(orgID)
	if o == nil {
		return nil
	}
	d := delivery{
		Org: orgID, Event: e.ID, Type: e.Type, Created: e.Created.Unix(), Object: e.Object, Data: json.RawMessage(e.Data),
		Text: e.Text, Until: time.Now().Add(s.opts.GiveUp).Unix(),
	}
	for i, t := range o.targets {
		if !o.Endpoints[i].wants(e.Type) {
			continue
		}
		d.Target = t.key
		if t.perHour > 0 {
			within, err := s.bounded(ctx, &d, cmp.Or(e.Org, orgID), t.perHour)
			if err != nil {
				return err
			}
			if !within {
				continue
			}
		}
		if err := s.enqueue(ctx, &d); err != nil {
			return err
		}
	}
	if e.URL == "" {
		return nil
	}
	t, err := s.requested(orgID, e.URL)
	if err != nil { // the configuration has changed since it was accepted
		s.log.WarnContext(ctx, "webhook target of a request no longer allowed", "org", orgID, "event", e.ID)
		s.metrics.attempts.WithLabelValues("refused").Inc()
		return nil
	}
	d.Target, d.URL = t.key, e.URL // has no effect if it is one of the org's own targets
	return s.enqueue(ctx, &d)
}

// Ended sends the event for the end of a job, according to the notice that the job carried. An
// invalid notice is logged and dropped, because retrying would not help.
func (s *Sender) Ended(ctx context.Context, end queue.JobEnd) error {
	e, err := endOf(end.ID, string(end.State), end.Notice, end.At)
	if err != nil {
		s.log.ErrorContext(ctx, "unreadable job notice, webhook not sent", "job", end.ID, "err", err)
		return nil
	}
	return s.Send(ctx, end.Org, e)
}

func (s *Sender) enqueue(ctx context.Context, d *delivery, more ...asynq.Option) error {
	payload, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	id := strings.TrimSuffix(d.id()+"."+d.Round, ".")
	err = s.tasks.Enqueue(ctx, taskType, payload, append(more, asynq.Queue(queueName),
		asynq.TaskID(id), asynq.MaxRetry(tries), asynq.Timeout(s.opts.Timeout+redisTime), asynq.Retention(remember))...)
	switch {
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return nil
	case err != nil:
		return fmt.Errorf("webhook: enqueue %s: %w", d.id(), err)
	}
	tasks.CallServers(ctx, s.rdb, queueName)
	if d.Round != countRound {
		s.metrics.sent.WithLabelValues(d.Type).Inc()
	}
	return nil
}
