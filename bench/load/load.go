// Package load sends chat completions over keep-alive connections on loopback and measures the
// latency of the responses. It does not measure the target's CPU time, which is read separately
// from /proc.
package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Plan is one run against one address.
type Plan struct {
	Addr        string // host:port
	Key         string // sent as Bearer key
	Prompt      Prompt
	Connections int           // closed loop: callers; open loop: maximum calls in flight
	Rate        float64       // calls per second, Poisson; 0: closed loop
	Warmup      time.Duration // before counting starts
	Duration    time.Duration
	Seed        uint64
	// Mark is called when counting starts and when it ends.
	Mark func()
}

// Result counts the calls that ended in the measured period.
type Result struct {
	Calls, Errors int
	// Dropped counts arrivals that found all connections busy and the queue full (open loop
	// only). They would have waited longest.
	Dropped  int
	Elapsed  time.Duration
	Latency  []time.Duration // sorted; open loop: since the planned arrival
	FirstErr error
}

// Quantile returns a quantile of the latencies, q in [0, 1]; 0 if there are none.
func (r *Result) Quantile(q float64) time.Duration {
	if len(r.Latency) == 0 {
		return 0
	}
	return r.Latency[min(int(q*float64(len(r.Latency))), len(r.Latency)-1)]
}

// Rate returns the successful calls per second.
func (r *Result) Rate() float64 { return float64(r.Calls) / r.Elapsed.Seconds() }

// Run runs a plan. Failed calls are counted, not returned as an error.
func Run(ctx context.Context, p Plan) (*Result, error) {
	if p.Connections < 1 || p.Connections > 1024 || p.Duration <= 0 || p.Duration > 10*time.Minute {
		return nil, errors.New("load: 1 to 1,024 connections and at most 10 minutes")
	}
	ctx, cancel := context.WithTimeout(ctx, p.Warmup+p.Duration)
	defer cancel()
	from := time.Now().Add(p.Warmup)
	to := from.Add(p.Duration)
	var arrivals chan time.Time
	dropped := 0
	var wg sync.WaitGroup
	if p.Rate > 0 {
		arrivals = make(chan time.Time, 4*p.Connections)
		wg.Go(func() { dropped = arrive(ctx, p, from, arrivals) })
	}
	callers := make([]*caller, p.Connections)
	for i := range callers {
		callers[i] = newCaller(&p, uint64(i), from, to)
		wg.Go(func() { callers[i].run(ctx, arrivals) })
	}
	sleepUntil(ctx, from)
	p.Mark()
	sleepUntil(ctx, to)
	p.Mark()
	wg.Wait()
	res := &Result{Elapsed: p.Duration, Dropped: dropped}
	for _, c := range callers {
		res.Latency = append(res.Latency, c.latency...)
		res.Errors += c.errors
		if res.FirstErr == nil {
			res.FirstErr = c.firstErr
		}
	}
	res.Calls = len(res.Latency)
	slices.Sort(res.Latency)
	return res, nil
}

func sleepUntil(ctx context.Context, at time.Time) {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// arrive sends planned arrivals until the time is over.
func arrive(ctx context.Context, p Plan, from time.Time, arrivals chan<- time.Time) (dropped int) {
	defer close(arrivals)
	rng := rand.New(rand.NewPCG(p.Seed, 2))
	next := time.Now()
	for {
		next = next.Add(time.Duration(rng.ExpFloat64() / p.Rate * float64(time.Second)))
		sleepUntil(ctx, next)
		if ctx.Err() != nil {
			return dropped
		}
		select {
		case arrivals <- next:
		default:
			if next.After(from) {
				dropped++
			}
		}
	}
}

// caller is one connection with one call at a time.
type caller struct {
	plan     *Plan
	bodies   *bodies
	from, to time.Time
	conn     net.Conn
	in       *bufio.Reader
	head     []byte
	out      bytes.Buffer
	latency  []time.Duration
	errors   int
	firstErr error
}

func newCaller(p *Plan, number uint64, from, to time.Time) *caller {
	return &caller{
		plan: p, bodies: newBodies(p.Prompt, p.Seed<<16+number), from: from, to: to,
		head: fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer "+
			"%s\r\nContent-Type: application/json\r\nContent-Length: ", p.Addr, p.Key),
	}
}

// run makes calls until the time is over; arrivals is nil in a closed loop.
func (c *caller) run(ctx context.Context, arrivals <-chan time.Time) {
	defer c.hangUp()
	if arrivals != nil {
		for at := range arrivals {
			c.count(at, c.call(ctx))
		}
		return
	}
	for ctx.Err() == nil {
		at := time.Now()
		c.count(at, c.call(ctx))
	}
}

func (c *caller) count(began time.Time, err error) {
	now := time.Now()
	if now.Before(c.from) || now.After(c.to) {
		return
	}
	if err == nil {
		c.latency = append(c.latency, now.Sub(began))
		return
	}
	c.errors++
	if c.firstErr == nil {
		c.firstErr = err
	}
}

// call sends one request and reads the whole response.
func (c *caller) call(ctx context.Context) error {
	err := c.dial(ctx)
	if err == nil {
		err = c.exchange()
	}
	if err != nil {
		c.hangUp()
	}
	return err
}

func (c *caller) dial(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", c.plan.Addr)
	if err != nil {
		time.Sleep(10 * time.Millisecond) // no busy loop against a dead target
		return err
	}
	c.conn, c.in = conn, bufio.NewReaderSize(conn, 16<<10)
	return nil
}

func (c *caller) exchange() error {
	body := c.bodies.next()
	c.out.Reset()
	c.out.Write(c.head)
	c.out.WriteString(strconv.Itoa(len(body)))
	c.out.WriteString("\r\n\r\n")
	c.out.Write(body)
	_ = c.conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.Close {
		c.hangUp()
	}
	return err
}

func (c *caller) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// Probe makes one small call and returns an error if the response is wrong.
func Probe(ctx context.Context, addr, key string) error {
	c := newCaller(&Plan{Addr: addr, Key: key, Prompt: Prompt{Size: 300}}, 0, time.Time{}, time.Time{})
	defer c.hangUp()
	return c.call(ctx)
}
