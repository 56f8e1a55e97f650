package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// client sends spans to a collector by OTLP over HTTP with protobuf. It implements
// otlptrace.Client.
type client struct {
	target  *target
	http    *http.Client
	pause   time.Duration // after the first failure; doubles each time
	stopped context.Context
	stop    context.CancelFunc
}

// How long a batch is retried, and how much of a response is read.
const (
	firstPause   = 5 * time.Second
	longestPause = 30 * time.Second
	retryTime    = time.Minute
	maxAnswer    = 64 << 10
	maxQuote     = 500 // bytes of a rejection quoted in an error
)

func newClient(t *target) *client {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSClientConfig: t.tls, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
	}
	stopped, stop := context.WithCancel(context.Background()) //nolint:forbidigo // until Stop
	return &client{
		target: t, http: &http.Client{Transport: transport, Timeout: t.timeout},
		pause: firstPause, stopped: stopped, stop: stop,
	}
}

// Start does nothing; the first export opens the connection.
func (c *client) Start(context.Context) error { return nil }

// Stop interrupts an export and closes the connection.
func (c *client) Stop(context.Context) error {
	c.stop()
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces exports spans. It retries while the collector is busy, as long as ctx allows.
// TracesData has the wire format of OTLP's request message, whose package would import gRPC.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, retryTime)
	defer cancel()
	defer context.AfterFunc(c.stopped, cancel)()
	body, err := c.encode(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	pause := c.pause
	for {
		err := c.post(ctx, body)
		var busy *busyError
		if !errors.As(err, &busy) {
			return err
		}
		wait := max(busy.after, pause/2+rand.N(pause))
		if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		pause = min(2*pause, longestPause)
	}
}

// encode returns the body of a request.
func (c *client) encode(message proto.Message) ([]byte, error) {
	raw, err := proto.Marshal(message)
	if err != nil || !c.target.gzip {
		return raw, err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(raw)
	err = errors.Join(err, w.Close())
	return packed.Bytes(), err
}

// post sends a request once.
func (c *client) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target.url.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "llmguard")
	for name, value := range c.target.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if c.target.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok && failed.Temporary() {
		return &busyError{err: err}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the collector's answer is cut: %w", err)
	}
	return judge(resp, text)
}

// judge converts a response to an error.
func judge(resp *http.Response, text []byte) error {
	if resp.StatusCode < http.StatusMultipleChoices {
		if resp.Header.Get("Content-Type") != "application/x-protobuf" {
			return nil
		}
		return rejected(text)
	}
	quote := strings.ToValidUTF8(string(text[:min(len(text), maxQuote)]), "")
	err := fmt.Errorf("the collector answers %s: %s", resp.Status, strings.TrimSpace(quote))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &busyError{err: err, after: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return err
}

// busyError is a temporary failure.
type busyError struct {
	err   error
	after time.Duration // minimum pause requested by the collector
}

func (e *busyError) Error() string { return e.err.Error() }
func (e *busyError) Unwrap() error { return e.err }

// retryAfter parses Retry-After, in seconds or as a date.
func retryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.Atoi(value)
	if err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// rejectedError means that the collector accepted a batch except for some spans.
type rejectedError struct {
	spans   int64
	message string
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("the collector rejects %d spans: %s", e.spans, e.message)
}

// rejected parses an ExportTraceServiceResponse: field 1 is a partial
// success, in which field 1 counts what is rejected and field 2 is a message. A warning without
// rejected spans is not an error.
func rejected(answer []byte) error {
	var e rejectedError
	walkFields(answer, func(number protowire.Number, _ uint64, partial []byte) {
		if number != 1 {
			return
		}
		walkFields(partial, func(number protowire.Number, n uint64, text []byte) {
			switch number {
			case 1:
				e.spans = int64(n)
			case 2:
				e.message = strings.ToValidUTF8(string(text[:min(len(text), maxQuote)]), "")
			}
		})
	})
	if e.spans <= 0 {
		return nil
	}
	return &e
}

// walkFields calls fn for every number and every string of a protobuf message, until its end or
// an invalid field.
func walkFields(message []byte, fn func(number protowire.Number, n uint64, text []byte)) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return
		}
		message = message[size:]
		var n uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 {
			return
		}
		fn(number, n, text)
		message = message[size:]
	}
}
