// Package fakeprovider is a real HTTP server that implements OpenAI's API: chat completions and
// responses (both streamed or not), legacy completions, embeddings, moderations, models, files
// and batches, with plausible text, usage, rate-limit headers, and faults on demand. It also
// implements Anthropic's Messages API, with batches.
//
// "llmguard dev" uses it when there is no provider key, and the tests use it as the upstream.
// It generates text without running a model. It is strict where a proxy could hide a mistake
// (types, ranges, contradictory fields) and lenient about unknown fields, so that tests can
// check that bytes are preserved.
//
// Faults can be requested in four ways, later ones adding to earlier ones: [Server.Script],
// [Server.ScriptModel], the request header X-Fake, and a directive in the text of a message
// such as "[fake: output=50 cut=reset]", which also works through a proxy that strips headers.
// [ParseDirectives] lists the words.
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

// Options configures a Server. The zero value responds immediately, accepts every key and
// model, and enforces no quota.
type Options struct {
	Addr   string   // address to listen on; default 127.0.0.1:0
	Seed   uint64   // changes all generated text
	Key    string   // required key; "" accepts any, and outside Anthropic's API none
	Models []string // the only known models; nil accepts every name and lists a few
	// Cadence is the pace of responses; zero means no delay.
	Cadence Cadence
	Quota   Quota // of all keys together that are not in KeyQuota
	// KeyQuota is the quota of separate accounts, by key.
	KeyQuota   map[string]Quota
	LogSize    int   // records kept by Log; default 20,000
	KeepBodies bool  // keep request bodies in the log
	MaxBody    int64 // maximum bytes of a request body; default 64 MiB, larger gets a 413
}

// Cadence is the speed of a response. A streamed one has it chunk by chunk; a plain one waits
// First + tokens x Token before its headers.
type Cadence struct {
	First time.Duration // before the first token
	Token time.Duration // between tokens
}

// DevCadence is slow enough to watch and fast enough not to be a nuisance.
func DevCadence() Cadence {
	return Cadence{First: 250 * time.Millisecond, Token: 12 * time.Millisecond}
}

func (o Options) withDefaults() Options {
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	o.LogSize = cmp.Or(o.LogSize, 20_000)
	o.MaxBody = cmp.Or(o.MaxBody, 64<<20)
	return o
}

// Server is a fake provider. Its methods are safe for concurrent use, except that Start must
// return before URL is called.
type Server struct {
	opts   Options
	log    *record
	quotas quotas
	now    func() time.Time // the clock of quotas
	cache  prefixCache
	closed context.Context // cancelled by Close, which ends every hanging response
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

// New returns a server that does not listen yet; use its Handler or call Start.
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

// Start listens and serves in the background until Close. It returns once the address is bound.
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

// URL returns the root of a started server, such as "http://127.0.0.1:40001".
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// BaseURL returns the base URL for OpenAI clients: URL() + "/v1".
func (s *Server) BaseURL() string { return s.URL() + "/v1" }

// Close stops listening, aborts requests in flight and waits for their handlers. Log and Totals
// stay readable.
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

// Script sets the function that controls the response to each request; nil restores normal
// responses. The function is called concurrently.
func (s *Server) Script(fn func(*Request) Behaviour) {
	s.change(func() { s.script = fn })
}

// ScriptModel controls the responses to requests for one model; it replaces the result of
// Script.
func (s *Server) ScriptModel(model string, b Behaviour) {
	s.change(func() { s.byModel[model] = b })
}

// behaviour combines everything that controls the response to this request.
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

// attempt counts how often this exact body has been sent.
func (s *Server) attempt(req *Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.attempts) > 100_000 {
		clear(s.attempts)
	}
	s.attempts[req.hash]++
	return s.attempts[req.hash]
}

// sleep waits, and returns false if the client or the server is gone.
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
