// Package fakeprovider is a real HTTP server that speaks OpenAI's wire:
// chat completions, responses (both streamed or not), the older completions,
// embeddings, moderations, models, files and batches, with plausible
// text, usage, rate-limit headers, and faults on demand.
//
// It is what "llmguard dev" talks to when there is no provider key, and the
// upstream of the tests. It invents text and never runs a model. It is strict
// where a proxy could hide a mistake (types, ranges, contradictory fields) and
// lenient about unknown fields, so that bytes that must survive can be tested.
//
// Faults are asked for in four ways, later ones adding to earlier ones:
// [Server.Script], [Server.ScriptModel], the request header X-Fake, and a
// directive in the text of a message such as "[fake: output=50 cut=reset]",
// which also works through a proxy that strips headers. [ParseDirectives]
// lists the words.
package fakeprovider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Options configures a Server. The zero value answers at once, accepts every
// key and model, and enforces no quota.
type Options struct {
	Addr   string   // address to listen on; default 127.0.0.1:0
	Seed   uint64   // changes all generated text
	Key    string   // the Bearer key a request must carry; "" accepts all, even none
	Models []string // the only models known; nil knows every name and lists a few
	// Cadence is the pace of answers; zero means no delay at all.
	Cadence Cadence
	// Quota is enforced over all models together, except those in ModelQuota,
	// which have one of their own.
	Quota      Quota
	ModelQuota map[string]Quota
	// KeyQuota is that of accounts of their own, by Bearer key, over all models.
	KeyQuota   map[string]Quota
	LogSize    int   // records kept by Log; default 20,000
	KeepBodies bool  // keep request bodies in the log
	MaxBody    int64 // bytes of a request body; default 64 MiB, more is a 413
}

// Cadence is how fast an answer comes. A streamed answer shows it chunk by
// chunk; a plain one waits First + tokens x Token before its headers.
type Cadence struct {
	First time.Duration // before the first token
	Token time.Duration // between tokens
}

// DevCadence is slow enough to watch and fast enough not to wait for.
func DevCadence() Cadence {
	return Cadence{First: 250 * time.Millisecond, Token: 12 * time.Millisecond}
}

func (o Options) withDefaults() Options {
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	if o.LogSize <= 0 {
		o.LogSize = 20_000
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 64 << 20
	}
	return o
}

// Server is one fake provider. Its methods are safe for concurrent use, except
// that Start must return before URL is called.
type Server struct {
	opts   Options
	log    *record
	quotas *quotas
	now    func() time.Time // clock of the quotas
	cache  prefixCache
	closed context.Context // ends with Close, and with it every hanging answer
	close  context.CancelFunc

	mu       sync.Mutex
	script   func(*Request) Behaviour
	byModel  map[string]Behaviour
	attempts map[string]int // by hash of the body, for Behaviour.Times
	kept     map[string]*response
	files    []*storedFile // oldest first
	batches  []*batchJob   // oldest first
	things   []*thing      // oldest first

	batchScript func(number int) BatchScript
	running     sync.WaitGroup // batches

	http     *http.Server
	listener net.Listener
}

// New returns a server that does not listen yet; use its Handler, or Start it.
func New(opts Options) *Server {
	opts = opts.withDefaults()
	s := &Server{
		opts:     opts,
		log:      newRecord(opts.LogSize),
		quotas:   newQuotas(opts),
		now:      time.Now,
		byModel:  make(map[string]Behaviour),
		attempts: make(map[string]int),
		kept:     make(map[string]*response),
	}
	s.closed, s.close = context.WithCancel(context.Background())
	return s
}

// Start listens and serves in the background until Close. It returns once the
// address is bound.
func (s *Server) Start() error {
	l, err := (&net.ListenConfig{}).Listen(s.closed, "tcp", s.opts.Addr)
	if err != nil {
		return fmt.Errorf("fake provider: %w", err)
	}
	s.listener = l
	s.http = &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.close()
		}
	}()
	return nil
}

// URL is the root of a started server, such as "http://127.0.0.1:40001".
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// BaseURL is what an OpenAI client takes as its base URL: URL() + "/v1".
func (s *Server) BaseURL() string { return s.URL() + "/v1" }

// Close stops listening, cuts what is in flight and waits for its handlers.
// Log and Totals stay readable.
func (s *Server) Close() error {
	s.close()
	var err error
	if s.http != nil {
		err = s.http.Close()
	}
	s.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, s.Quiet(ctx))
}

// Script decides how each request is answered; nil goes back to plain answers.
// The function is called from many goroutines at once.
func (s *Server) Script(fn func(*Request) Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = fn
}

// ScriptModel decides how requests for one model are answered; it comes after
// Script and replaces what that returned.
func (s *Server) ScriptModel(model string, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byModel[model] = b
}

// behaviour joins everything that has a say about this request.
func (s *Server) behaviour(req *Request) (Behaviour, error) {
	var b Behaviour
	s.mu.Lock()
	script, byModel := s.script, s.byModel[req.Model]
	s.mu.Unlock()
	if script != nil {
		b = script(req)
	}
	if !byModel.isZero() {
		b = byModel
	}
	for _, text := range slices.Concat(req.Header.Values("X-Fake"), directives(req.UserText)) {
		if err := b.parse(text); err != nil {
			return b, err
		}
	}
	if b.Times > 0 && s.attempt(req) > b.Times {
		b = b.healed()
	}
	return b, nil
}

// attempt counts how often this very body has come.
func (s *Server) attempt(req *Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.attempts) > 100_000 {
		clear(s.attempts)
	}
	s.attempts[req.hash]++
	return s.attempts[req.hash]
}

// sleep waits, and reports false when the client or the server went away.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil && s.closed.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-s.closed.Done():
		return false
	}
}
