// Package mock is a provider with OpenAI's API that keeps account of what it sold: of each call, also
// of those that were hung up, what it had generated until it noticed.
package mock

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/bench/budget/price"
)

// Sale is what one request to the mock cost its customer.
type Sale struct {
	Marker string // of the caller's call, see Marker
	Model  string
	Nano   price.Nano
	At     time.Time // when the request arrived
	Usage  price.Usage
}

// Behaviour is how the mock answers. The zero value generates all the output that a request allows,
// immediately, and reports its usage.
type Behaviour struct {
	Output    int           // tokens to generate; 0: the request's limit, or 16 without one
	Reasoning int           // of Output, tokens that are not shown
	Cached    int           // of the input, tokens that are priced as cached
	First     time.Duration // until the first token
	Pace      time.Duration // between two tokens
	Gate      <-chan struct{}
	Status    int    // fails with this status, and sells nothing
	Body      string // of the failure; default: an error in OpenAI's form
	Break     int    // closes the connection after this many tokens; -1: before anything
	NoUsage   bool
	Lie       func(*price.Usage) // changes the usage that is reported, not the one that is sold
	Model     string             // answers as this model, at its price
}

// Server is a running mock. Its methods are safe for concurrent use.
type Server struct {
	URL string // without /v1

	mu     sync.Mutex
	rules  map[string]func(attempt int) Behaviour
	seen   map[string]int
	sales  []Sale
	open   int
	most   int // requests in flight at most since the last Peak
	files  map[string][]byte
	batch  map[string]map[string]any
	server *http.Server
}

// Start starts a mock on a free port of 127.0.0.1.
func Start() (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		URL: "http://" + listener.Addr().String(), rules: map[string]func(int) Behaviour{},
		seen: map[string]int{}, files: map[string][]byte{}, batch: map[string]map[string]any{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("POST /v1/files", s.upload)
	mux.HandleFunc("GET /v1/files/{id}", s.file)
	mux.HandleFunc("GET /v1/files/{id}/content", s.content)
	mux.HandleFunc("POST /v1/batches", s.createBatch)
	mux.HandleFunc("GET /v1/batches/{id}", s.getBatch)
	mux.HandleFunc("POST /v1/", s.sell)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

// Close stops the mock and breaks its connections.
func (s *Server) Close() { _ = s.server.Close() }

// On sets how the mock answers the calls with a marker. Attempts count from 0.
func (s *Server) On(marker string, rule func(attempt int) Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules[marker] = rule
}

// Sales returns all sales so far.
func (s *Server) Sales() []Sale {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Sale(nil), s.sales...)
}

// Open returns how many requests are in flight.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Peak returns how many requests were in flight at most since the last Peak.
func (s *Server) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most
	s.most = s.open
	return most
}

// Arrived returns how many requests with a marker have arrived.
func (s *Server) Arrived(marker string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[marker]
}

func (s *Server) record(sale Sale) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sales = append(s.sales, sale)
}

// enter notes a request, and returns how to answer it.
func (s *Server) enter(marker string) Behaviour {
	s.mu.Lock()
	attempt := s.seen[marker]
	s.seen[marker]++
	s.open++
	s.most = max(s.most, s.open)
	rule := s.rules[marker]
	s.mu.Unlock()
	if rule == nil {
		return Behaviour{}
	}
	return rule(attempt)
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// digits are words of one token each in OpenAI's tokenizers. A call's number, in these words, is a
// part of its prompt, because nothing else of a request survives every gateway.
var digits = strings.Fields("zero one two three four five six seven eight nine ten red blue green black white")

// MarkerWords is how many words, each one token, a marker adds to a prompt.
const MarkerWords = 7

// Marker returns the words for a call's number.
func Marker(call int) string {
	words := make([]string, MarkerWords)
	words[0] = "call"
	for i := MarkerWords - 1; i > 0; i-- {
		words[i] = digits[call%len(digits)]
		call /= len(digits)
	}
	return strings.Join(words, " ")
}

var marked = regexp.MustCompile(`call(?: (?:` + strings.Join(digits, "|") + `)){6}`)

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	list := []map[string]any{}
	for _, m := range price.Models {
		list = append(list, map[string]any{"id": m.Name, "object": "model", "owned_by": "mock"})
	}
	answer(w, map[string]any{"object": "list", "data": list})
}

// sell answers everything that costs money.
func (s *Server) sell(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	marker := marked.FindString(string(body))
	b := s.enter(marker)
	defer s.leave()
	if b.Gate != nil {
		select {
		case <-b.Gate:
		case <-r.Context().Done():
			return
		}
	}
	if b.Status != 0 {
		s.refuse(w, b)
		return
	}
	if b.Break < 0 {
		panic(http.ErrAbortHandler)
	}
	q := &request{marker: marker, at: time.Now(), behaviour: b, path: strings.TrimPrefix(r.URL.Path, "/v1/")}
	if err := q.read(r, body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]any{"error": map[string]any{"message": err.Error(), "type": "invalid_request_error"}})
		return
	}
	defer func() { // also of a connection that breaks
		s.record(Sale{Marker: marker, Model: q.model.Name, Nano: q.model.Cost(q.used), At: q.at, Usage: q.used})
	}()
	q.serve(w, r)
}

func (s *Server) refuse(w http.ResponseWriter, b Behaviour) {
	if b.Body == "" {
		w.Header().Set("Content-Type", "application/json")
		b.Body = `{"error": {"message": "the mock fails this call", "type": "server_error", "code": null}}`
	}
	w.WriteHeader(b.Status)
	_, _ = io.WriteString(w, b.Body)
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
