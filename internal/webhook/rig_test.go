package webhook

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// post is a received request.
type post struct {
	header http.Header
	body   string
}

// receiver is a target: a real HTTPS server.
type receiver struct {
	*httptest.Server
	answer func(n int, w http.ResponseWriter) // for the n-th post, starting at 1

	mu    sync.Mutex
	posts []post
	conns int
}

// newReceiver starts a receiver; a nil answer responds with 200.
func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.mu.Lock()
			r.conns++
			r.mu.Unlock()
		}
	}
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.posts = append(r.posts, post{req.Header.Clone(), string(body)})
	n := len(r.posts)
	r.mu.Unlock()
	if r.answer != nil {
		r.answer(n, w)
	}
}

func (r *receiver) got() []post {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.posts)
}

func (r *receiver) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns
}

// host returns the receiver's address under the name in its certificate.
func (r *receiver) host(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("example.com", port)
}

// site is a Redis and a resolver that directs example.com to this machine.
type site struct {
	t       *testing.T
	redis   *redistest.Server
	names   *nameServer
	options Options
}

func newSite(t *testing.T) *site {
	s := &site{t: t, redis: redistest.Start(t), names: newNameServer(t)}
	s.names.set("example.com", "127.0.0.1")
	s.options = Options{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Resolver:      s.names.resolver(),
		Timeout:       2 * time.Second,
	}
	return s
}

// sender returns a Sender for one org; all receivers share one certificate.
func (s *site) sender(one Org, trust *receiver) *Sender {
	s.t.Helper()
	o := s.options
	o.Orgs = map[string]Org{"acme": one}
	if trust != nil {
		o.RootCAs = x509.NewCertPool()
		o.RootCAs.AddCert(trust.Certificate())
	}
	sender, err := New(s.redis.DB(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	sender.backoff = func(int) time.Duration { return time.Millisecond }
	sender.retries = 10 * time.Millisecond
	return sender
}

// run runs a Sender until stop is called or the test ends.
func run(t *testing.T, s *Sender) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := redistest.Came(t, done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func send(t *testing.T, s *Sender, e Event) {
	t.Helper()
	if err := s.Send(t.Context(), "acme", e); err != nil {
		t.Fatal(err)
	}
}

// settled waits until no delivery is pending or in progress.
func settled(t *testing.T, s *Sender) {
	t.Helper()
	redistest.Eventually(t, "all deliveries made", func() bool {
		info, err := s.metrics.waiting.tasks.GetQueueInfo(queueName)
		return err == nil && info.Pending+info.Active+info.Scheduled+info.Retry == 0
	})
}

func to(t *testing.T, r *receiver, events ...string) Org {
	return Org{Endpoints: []Endpoint{{URL: "https://" + r.host(t) + "/hook?x=1", Secrets: []Secret{secret(t, secret1), secret(t, secret2)}, Events: events}}}
}

func dead(t *testing.T, s *Sender) []DeadLetter {
	t.Helper()
	list, err := s.Dead(t.Context(), "acme", 10)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var happened = time.Unix(1_790_000_000, 0)
