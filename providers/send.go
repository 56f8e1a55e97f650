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
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/providers/dialect"
)

// Request is one call to a provider.
type Request struct {
	Method string // empty means POST
	Path   string // below the base URL, from our own fixed table
	Query  string // the caller's query string; only known parameters are sent
	Model  string // the provider's name
	Header http.Header
	Trace  http.Header      // trace headers, sent unchanged; nil sends none
	Type   string           // Content-Type; "" is application/json
	Body   func() io.Reader // a new reader of the same bytes at each call; nil sends none
	Length int64
	// Permit, if set, is called right before the first byte is written. Its error stops the call unsent.
	Permit func() error
}

// SendError reports how far a failed call got.
type SendError struct {
	Err error
	// Sent is false only if it is certain that no byte of the request reached the provider.
	Sent bool
	// Refused means that Err is the error of Request.Permit.
	Refused bool
}

func (e *SendError) Error() string { return e.Err.Error() }
func (e *SendError) Unwrap() error { return e.Err }

// relayed lists the response headers that are passed back. Other openai-* headers may reveal more
// about the account than its callers should know.
var relayed = []string{
	"Content-Type", "X-Request-Id", "Request-Id", "Openai-Model", "Openai-Processing-Ms", "Openai-Version",
}

// advice lists the response headers that are passed back with an error.
var advice = []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"}

// withheld lists the headers that identify the account.
var withheld = []string{"Openai-Organization", "Openai-Project"}

// Send writes the request and returns the provider's answer, whose body the caller must close.
// Errors are *SendError. A request is sent at most once: another connection is tried only if a
// kept-alive connection turns out to be dead before a byte was written.
func (p *Provider) Send(ctx context.Context, r Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, how, err := p.sendOnce(ctx, r)
		if err == nil {
			return resp, nil
		}
		if how.refused || how.sent || !how.reused || try == 3 || ctx.Err() != nil {
			return nil, &SendError{Err: &namelessError{err, p.hidden}, Sent: how.sent, Refused: how.refused}
		}
	}
}

// tried describes the attempt to send a request.
type tried struct {
	sent    bool // it may have reached the provider
	reused  bool // over a connection that was used before
	refused bool // by Request.Permit
}

func (p *Provider) sendOnce(ctx context.Context, r Request) (resp *http.Response, how tried, err error) {
	call := dialect.Call{Account: p.account(), Path: r.Path, Query: p.known(r.Query), Model: r.Model}
	resp, how, err = p.roundTrip(ctx, r, call)
	if err == nil {
		resp.Request = nil // it references the body
		err = decode(resp)
	}
	if err == nil {
		err = p.Dialect.Response(resp, call)
	}
	if err != nil && resp != nil {
		resp.Body.Close()
	}
	if err == nil {
		p.hide(resp)
	}
	return resp, how, err
}

func (p *Provider) roundTrip(ctx context.Context, r Request, c dialect.Call) (*http.Response, tried, error) {
	req, drop, err := p.request(r, c)
	if err != nil {
		return nil, tried{}, err
	}
	inner, cancel := context.WithCancelCause(ctx)
	gate := &gate{permit: r.Permit}
	conn := &usedConn{gate: gate, stop: func() { cancel(nil) }, drop: drop}
	resp, err := p.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(inner, conn.trace())))
	if err == nil {
		resp.Body = &idleBody{body: resp.Body, cancel: cancel, idle: cmp.Or(max(p.IdleTimeout, 0), 5*time.Minute)}
		return resp, tried{sent: true, reused: conn.reused}, nil
	}
	cancel(nil)
	if why := gate.refusal(); why != nil {
		return nil, tried{reused: conn.reused, refused: true}, why
	}
	return nil, tried{sent: conn.wrote(ctx.Err() != nil), reused: conn.reused}, err
}

// request builds the HTTP request by hand, because net/http would parse the URL again for every
// call. drop is that of bodyOf.
func (p *Provider) request(r Request, c dialect.Call) (req *http.Request, drop func(), err error) {
	at := *p.BaseURL
	body, drop := bodyOf(r)
	req = &http.Request{
		Method: cmp.Or(r.Method, http.MethodPost), URL: &at, Host: at.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.header(r), Body: body, ContentLength: r.Length,
	}
	return req, drop, p.Dialect.Request(req, c)
}

// known returns a query with the parameters that the dialect sends, in a form that every server parses the same
// way.
func (p *Provider) known(query string) string {
	if query == "" {
		return ""
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, wrongName := url.QueryUnescape(name)
		value, wrongValue := url.QueryUnescape(value)
		if wrongName == nil && wrongValue == nil && p.Dialect.Parameters(name) {
			kept = append(kept, url.QueryEscape(name)+"="+url.QueryEscape(value))
		}
	}
	return strings.Join(kept, "&")
}

// Header values of every request; they must not be modified.
var (
	jsonType  = []string{"application/json"}
	identity  = []string{"identity"}
	userAgent = []string{"llmguard"}
)

func (p *Provider) header(r Request) http.Header {
	h := make(http.Header, 8)
	for name, v := range r.Header {
		if p.Dialect.Forwards(name) {
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
	return h
}

// CopyHeaders copies the response headers a caller may see.
func CopyHeaders(dst, src http.Header) { copyHeaders(dst, src, relayed) }

// CopyAdvice copies a provider's advice on retrying its error.
func CopyAdvice(dst, src http.Header) { copyHeaders(dst, src, advice) }

func copyHeaders(dst, src http.Header, names []string) {
	for _, name := range names {
		if v := src[name]; len(v) > 0 {
			dst[name] = v
		}
	}
}

const (
	idleLife = 55 * time.Second // of an idle connection: below the usual 60 s of load balancers
	idleMost = 1024             // idle connections kept
	readSize = 32 << 10         // bytes read or written at a time
)

func newTransport(p *Provider) *http.Transport {
	connect := cmp.Or(max(p.ConnectTimeout, 0), 10*time.Second)
	dial := (&net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}).DialContext
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           countWrites(dial),
		TLSHandshakeTimeout:   connect,
		ResponseHeaderTimeout: cmp.Or(max(p.HeaderTimeout, 0), 15*time.Minute),
		MaxIdleConns:          0,
		MaxIdleConnsPerHost:   idleMost,
		IdleConnTimeout:       idleLife,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
		WriteBufferSize:       readSize,
		ReadBufferSize:        readSize,
	}
}

// decode decodes a gzip encoding that was not requested, so that usage can be read and the client,
// which did not request it either, gets plain bytes.
func decode(resp *http.Response) error {
	switch enc := resp.Header.Get("Content-Encoding"); strings.ToLower(enc) {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		resp.Body = &gzipBody{ReadCloser: resp.Body}
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
		resp.Header.Del("Content-Encoding")
		return nil
	default:
		return fmt.Errorf("the provider answered with Content-Encoding %q, but identity was requested", enc)
	}
}

// gzipBody starts decoding at the first read, so that an empty body is valid and a slow one is
// subject to the idle timeout.
type gzipBody struct {
	io.ReadCloser
	plain *gzip.Reader
}

func (b *gzipBody) Read(p []byte) (int, error) {
	if b.plain == nil {
		z, err := gzip.NewReader(b.ReadCloser)
		if err != nil {
			return 0, err // io.EOF for an empty body
		}
		b.plain = z
	}
	return b.plain.Read(p)
}

// ErrIdle ends a body that sent nothing for the provider's idle timeout.
var ErrIdle = errors.New("the provider sent nothing for too long")

// idleBody cancels the call if a read waits longer than idle.
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
