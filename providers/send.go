package providers

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Request is one call to a provider.
type Request struct {
	Method string // empty means POST
	Path   string // below the base URL, from our own fixed table
	Query  string // the caller's query string, of which only known parameters are sent
	Model  string // the name the provider knows
	Header http.Header
	Trace  http.Header      // what hands a trace on, sent as it is; nil sends none
	Type   string           // Content-Type; "" is application/json
	Body   func() io.Reader // a new reader of the same bytes at each call; nil sends none
	Length int64
	// Fresh, when set, is asked right before the first byte is written; false
	// stops the call unsent with ErrStale.
	Fresh func() bool
}

// SendError says how far a failed call got.
type SendError struct {
	Err error
	// Sent is false only when it is certain that no byte of the request
	// reached the provider.
	Sent bool
}

func (e *SendError) Error() string { return e.Err.Error() }
func (e *SendError) Unwrap() error { return e.Err }

// forwarded names the request headers passed on; all others stay here.
var forwarded = []string{"Openai-Beta", "X-Client-Request-Id"}

// relayed names the response headers passed back. Another openai-* header may say more
// of the account than its callers are to know.
var relayed = []string{"Content-Type", "X-Request-Id", "Openai-Model", "Openai-Processing-Ms", "Openai-Version"}

// advice names the response headers that are passed back with an error.
var advice = []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"}

// withheld names the headers that say whose account it is.
var withheld = []string{"Openai-Organization", "Openai-Project"}

// Send writes the request and returns the provider's answer, whose body the
// caller must close. Errors are *SendError. A request is sent at most once:
// only when a kept-alive connection turns out dead before a byte was written
// is another one tried.
func (p *Provider) Send(ctx context.Context, r Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, how, err := p.sendOnce(ctx, r)
		if err == nil {
			return resp, nil
		}
		if errors.Is(err, ErrStale) || how.sent || !how.reused || try == 3 || ctx.Err() != nil {
			return nil, &SendError{Err: &namelessError{err, p.hidden}, Sent: how.sent}
		}
	}
}

// tried says how a request went.
type tried struct {
	sent   bool // it may have reached the provider
	reused bool // over a connection that others had used
}

func (p *Provider) sendOnce(ctx context.Context, r Request) (resp *http.Response, how tried, err error) {
	resp, how, err = p.roundTrip(ctx, r)
	if err == nil {
		resp.Request = nil // it has the body
		err = decode(resp)
	}
	if err != nil && resp != nil {
		resp.Body.Close()
	}
	if err == nil {
		p.hide(resp)
	}
	return resp, how, err
}

func (p *Provider) roundTrip(ctx context.Context, r Request) (*http.Response, tried, error) {
	inner, cancel := context.WithCancelCause(ctx)
	grant := &gate{fresh: r.Fresh}
	req, drop := p.request(r)
	conn := &usedConn{grant: grant, stop: func() { cancel(ErrStale) }, drop: drop}
	resp, err := p.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(inner, conn.trace())))
	switch {
	case err == nil:
		resp.Body = &idleBody{body: resp.Body, cancel: cancel, idle: p.idleTimeout()}
		return resp, tried{sent: true, reused: conn.reused}, nil
	case grant.stale.Load():
		cancel(nil)
		return nil, tried{reused: conn.reused}, ErrStale
	}
	cancel(nil)
	return nil, tried{sent: conn.wrote(ctx.Err() != nil), reused: conn.reused}, err
}

// request is one request, built by hand: net/http would parse the URL again at
// every call. Drop is as that of bodyOf.
func (p *Provider) request(r Request) (req *http.Request, drop func()) {
	at := *p.BaseURL
	path, query := r.Path, known(r.Query)
	if p.Kind == Azure {
		path, query = p.azure(r, query)
	}
	at.Path = strings.TrimSuffix(at.Path, "/") + path
	if at.RawPath != "" {
		at.RawPath = strings.TrimSuffix(at.RawPath, "/") + path
	}
	at.RawQuery = query
	body, drop := bodyOf(r)
	return &http.Request{
		Method: cmp.Or(r.Method, http.MethodPost), URL: &at, Host: at.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.header(r), Body: body, ContentLength: r.Length,
	}, drop
}

// parameters are those of OpenAI's API that a caller may send. No other reaches a provider:
// it may choose the version of the API, or a credential.
var parameters = []string{
	"after", "before", "filter", "include", "include[]", "include_obfuscation", "limit", "order", "purpose",
	"starting_after", "stream",
}

// known is a query without parameters that are not known, written so that every server
// reads it alike.
func known(query string) string {
	if query == "" {
		return ""
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, wrongName := url.QueryUnescape(name)
		value, wrongValue := url.QueryUnescape(value)
		if wrongName == nil && wrongValue == nil && slices.Contains(parameters, name) {
			kept = append(kept, url.QueryEscape(name)+"="+url.QueryEscape(value))
		}
	}
	return strings.Join(kept, "&")
}

// What every request says; nobody changes the values.
var (
	jsonType  = []string{"application/json"}
	identity  = []string{"identity"}
	userAgent = []string{"llmguard"}
)

func (p *Provider) header(r Request) http.Header {
	h := make(http.Header, 8)
	for _, name := range forwarded {
		if v := r.Header[name]; len(v) > 0 {
			h[name] = v
		}
	}
	maps.Copy(h, r.Trace)
	maps.Copy(h, p.Headers)
	h["Content-Type"] = jsonType
	h["Accept-Encoding"] = identity
	h["User-Agent"] = userAgent
	if r.Type != "" {
		h["Content-Type"] = []string{r.Type}
	}
	switch {
	case p.APIKey == "":
	case p.Kind == Azure:
		h["Api-Key"] = []string{p.APIKey}
	default:
		h["Authorization"] = []string{"Bearer " + p.APIKey}
	}
	return h
}

// CopyHeaders copies the response headers a caller may see.
func CopyHeaders(dst, src http.Header) {
	for _, name := range relayed {
		if v := src[name]; len(v) > 0 {
			dst[name] = v
		}
	}
}

// CopyAdvice copies what a provider advises on retrying its error.
func CopyAdvice(dst, src http.Header) {
	for _, name := range advice {
		if v := src[name]; len(v) > 0 {
			dst[name] = v
		}
	}
}

func (p *Provider) idleTimeout() time.Duration {
	if p.IdleTimeout > 0 {
		return p.IdleTimeout
	}
	return 5 * time.Minute
}

const (
	idleLife = 55 * time.Second // of a connection nobody uses: below the usual 60 s of load balancers
	idleMost = 1024             // connections kept
	readSize = 32 << 10         // bytes read or written at a time
)

// newTransport is how a provider is reached.
func newTransport(p *Provider) *http.Transport {
	connect, header := p.ConnectTimeout, p.HeaderTimeout
	if connect <= 0 {
		connect = 10 * time.Second
	}
	if header <= 0 {
		header = 15 * time.Minute
	}
	dial := (&net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}).DialContext
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           countWrites(dial),
		TLSHandshakeTimeout:   connect,
		ResponseHeaderTimeout: header,
		MaxIdleConns:          0,
		MaxIdleConnsPerHost:   idleMost,
		IdleConnTimeout:       idleLife,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
		WriteBufferSize:       readSize,
		ReadBufferSize:        readSize,
	}
}

// decode undoes a gzip encoding that was not asked for, so that usage can be
// read and the client, which did not ask either, gets plain bytes.
func decode(resp *http.Response) error {
	switch enc := resp.Header.Get("Content-Encoding"); strings.ToLower(enc) {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		resp.Body = &gzipBody{body: resp.Body}
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
		resp.Header.Del("Content-Encoding")
		return nil
	default:
		return fmt.Errorf("the provider answered with Content-Encoding %q although identity was asked for", enc)
	}
}

// gzipBody begins to decode at the first read, so that an empty body is empty
// and a slow one falls under the idle timeout.
type gzipBody struct {
	body  io.ReadCloser
	plain *gzip.Reader
}

func (b *gzipBody) Read(p []byte) (int, error) {
	if b.plain == nil {
		z, err := gzip.NewReader(b.body)
		if err != nil {
			return 0, err // io.EOF for an empty body
		}
		b.plain = z
	}
	return b.plain.Read(p)
}

func (b *gzipBody) Close() error { return b.body.Close() }

// ErrIdle ends a body that sent nothing for the provider's idle timeout.
var ErrIdle = errors.New("the provider sent nothing for too long")

// idleBody cancels the call when a read waits longer than idle.
type idleBody struct {
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	idle   time.Duration
	timer  *time.Timer
	fired  atomic.Bool
}

func (b *idleBody) Read(p []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.idle, func() { b.fired.Store(true); b.cancel(ErrIdle) })
	} else {
		b.timer.Reset(b.idle)
	}
	n, err := b.body.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF && b.fired.Load() {
		err = ErrIdle
	}
	return n, err
}

func (b *idleBody) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.cancel(nil)
	return b.body.Close()
}
