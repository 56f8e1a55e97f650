package providers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
)

const (
	idleLife = 55 * time.Second // of a connection nobody uses: below the usual 60 s of load balancers
	idleMost = 1024             // connections kept
	readSize = 32 << 10         // bytes read at a time
	headMost = 10 << 20         // bytes of an answer's head
)

// direct sends small requests over plain HTTP/1.1 and reads their answers from the
// goroutine that asks for it. net/http's Transport keeps two goroutines for each
// connection and hands every call to and fro between three, which takes more of the
// processor than all that is written and read. What is written and read is net/http's
// here, too. It is safe for concurrent use.
type direct struct {
	addr string // host:port
	dial dialFunc
	head time.Duration // until the head of an answer

	mu     sync.Mutex
	idle   []*directConn // the longest idle first
	reaper *time.Timer   // nil before the first is idle
	closed bool          // nobody wants connections to be kept
}

// newDirect returns what sends to a provider, or nil where only Transport will do.
func newDirect(p *Provider, dial dialFunc, head time.Duration) *direct {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: p.BaseURL})
	host := p.BaseURL.Hostname()
	beyondASCII := strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) // Transport knows its other form
	if !canPeek || p.BaseURL.Scheme != "http" || proxy != nil || err != nil || beyondASCII {
		return nil
	}
	return &direct{addr: net.JoinHostPort(host, cmp.Or(p.BaseURL.Port(), "80")), dial: dial, head: head}
}

// directConn is one connection. It belongs to one call at a time.
type directConn struct {
	net.Conn
	raw   syscall.RawConn
	in    *bufio.Reader // of the conn
	since time.Time     // when it became idle

	wait  time.Duration // at most, for the head or the next part of the body
	until time.Time     // the deadline that is set
	left  int64         // bytes that may still be read
}

var errHeadSize = errors.New("the head of the provider's answer is larger than 10 MB")

// Read reads until the deadline.
func (c *directConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeadSize
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// extend moves the deadline to wait from now, unless it is about there.
func (c *directConn) extend() {
	until := time.Now().Add(c.wait)
	if off := until.Sub(c.until); off.Abs() > c.wait/64 {
		c.until = until
		_ = c.SetDeadline(until) // a connection that is closed says so when it is read
	}
}

// take returns a connection that was idle and is whole, else a new one.
func (d *direct) take(ctx context.Context) (c *directConn, reused bool, err error) {
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	for c = d.pop(); c != nil; c = d.pop() {
		c.wait, c.left = d.head, headMost
		if c.extend(); quiet(c.raw) {
			return c, true, nil
		}
		c.Close()
	}
	conn, err := d.dial(ctx, "tcp", d.addr)
	if err != nil {
		return nil, false, err
	}
	c = &directConn{Conn: conn, wait: d.head, left: headMost}
	if c.raw, err = conn.(syscall.Conn).SyscallConn(); err != nil {
		conn.Close()
		return nil, false, err
	}
	c.in = bufio.NewReaderSize(c, readSize)
	return c, false, nil
}

// pop takes the connection that was used last, nil when there is none.
func (d *direct) pop() *directConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = false
	last := len(d.idle) - 1
	if last < 0 {
		return nil
	}
	c := d.idle[last]
	d.idle[last] = nil
	d.idle = d.idle[:last]
	return c
}

// keep makes a connection one that is idle.
func (d *direct) keep(c *directConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle) >= idleMost {
		c.Close()
		return
	}
	c.since = time.Now()
	d.idle = append(d.idle, c)
	switch {
	case len(d.idle) > 1: // the reaper is on its way
	case d.reaper == nil:
		d.reaper = time.AfterFunc(idleLife, d.reap)
	default:
		d.reaper.Reset(idleLife)
	}
}

// reap closes what has been idle for too long.
func (d *direct) reap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, now := 0, time.Now()
	for n < len(d.idle) && now.Sub(d.idle[n].since) >= idleLife {
		d.idle[n].Close()
		n++
	}
	d.idle = slices.Delete(d.idle, 0, n)
	if len(d.idle) > 0 {
		d.reaper.Reset(idleLife - now.Sub(d.idle[0].since))
	}
}

// closeIdle closes what is idle, and what becomes so until the next call.
func (d *direct) closeIdle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.idle {
		c.Close()
	}
	d.idle, d.closed = nil, true
	if d.reaper != nil {
		d.reaper.Stop()
	}
}

// requests holds buffers for requests as they are written.
var requests = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// send writes a request and reads the head of its answer. The body has to be closed;
// between its bytes no more than idle may pass.
func (d *direct) send(ctx context.Context, req *http.Request, g *gate, idle time.Duration) (*http.Response, tried, error) {
	c, reused, err := d.take(ctx)
	if err != nil {
		return nil, tried{}, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() }) // for good: nobody keeps it then
	resp, wrote, err := c.exchange(req, g)
	if err != nil {
		if stop() && errors.Is(err, ErrStale) {
			d.keep(c)
		} else {
			c.Close()
		}
		return nil, tried{sent: wrote > 0, reused: reused}, ended(ctx, err)
	}
	c.wait, c.left = idle, math.MaxInt64
	resp.Body = &directBody{
		pool: d, conn: c, ctx: ctx, stop: stop, body: resp.Body,
		keep: !resp.Close && resp.StatusCode >= http.StatusOK,
	}
	return resp, tried{sent: true, reused: reused}, nil
}

// ended says why a call failed whose context may have ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// exchange writes a request in one piece and reads the head of the final answer. Wrote
// is how many bytes may have reached the provider.
func (c *directConn) exchange(req *http.Request, g *gate) (resp *http.Response, wrote int, err error) {
	if !g.open() {
		return nil, 0, ErrStale
	}
	text := requests.Get().(*bytes.Buffer)
	defer requests.Put(text)
	text.Reset()
	if err := req.Write(text); err != nil {
		return nil, 0, err
	}
	c.extend()
	if wrote, err = c.Write(text.Bytes()); err != nil {
		return nil, wrote, err
	}
	for {
		resp, err = http.ReadResponse(c.in, req)
		if err == nil && resp.StatusCode < http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
			continue // news before the answer
		}
		return resp, wrote, err
	}
}

// directBody is the body of an answer. Read to its end, it leaves its connection to
// others; closed before that, it closes it.
type directBody struct {
	pool *direct
	conn *directConn
	ctx  context.Context
	stop func() bool // lets the end of ctx no longer close conn
	body io.ReadCloser
	keep bool  // others may use conn
	last error // of the read that ended it; nil: it was closed before
	over atomic.Bool
}

func (b *directBody) Read(p []byte) (int, error) {
	if b.over.Load() {
		return 0, cmp.Or(b.last, http.ErrBodyReadAfterClose)
	}
	b.conn.extend()
	n, err := b.body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		b.last = err
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.last = ErrIdle
	default:
		b.last = ended(b.ctx, err)
	}
	b.end(b.keep && err == io.EOF)
	return n, b.last
}

func (b *directBody) Close() error {
	b.end(b.keep && b.body == http.NoBody)
	return nil
}

// end lets go of the connection, once.
func (b *directBody) end(keep bool) {
	if b.over.Swap(true) {
		return
	}
	if b.stop() && keep && b.conn.in.Buffered() == 0 { // nobody asked for more
		b.pool.keep(b.conn)
	} else {
		b.conn.Close()
	}
}
