package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/bench/load"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/hostile"
)

// attack measures how three orgs that occupy all the connections they can affect another org,
// how much memory they take, and how much memory slow streams take.
type attack struct {
	*bench
	connections, streams, bodies int
	rate                         float64
	settle, lasts                time.Duration
	proxy                        *child.Process
	admin                        string
	keys                         []string // of the orgs; the first is honest, the last has the streams
	out                          io.Writer
}

const attackConfig = `listen: %[1]s
admin: {listen: "%[2]s"}
redis: {addresses: ["%[3]s"]}
store: {deadline: 10s}
log: {level: warn}
connections: {total: 20000, per_address: 20000}
providers:
  - {id: upstream, base_url: "%[4]s", api_key: upstream, pools: [{id: all, learn_quota: false}]}
orgs:
`

// attacked runs "bench hostile".
func attacked(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench hostile", flag.ContinueOnError)
	fs.SetOutput(stderr)
	a := &attack{bench: &bench{log: stderr}, out: stdout}
	fs.IntVar(&a.connections, "connections", 500, "hostile connections, of three orgs")
	fs.IntVar(&a.streams, "streams", 2000, "slow streams; 0 leaves them out")
	fs.IntVar(&a.bodies, "bodies", 1000, "unfinished bodies of 16 MB; 0 leaves them out")
	fs.Float64Var(&a.rate, "rate", 50, "calls a second of the honest org")
	fs.DurationVar(&a.settle, "settle", 15*time.Second, "how long an attack lasts before anything is measured")
	fs.DurationVar(&a.lasts, "for", 10*time.Second, "how long each run lasts")
	fs.StringVar(&a.guard, "llmguard", "", "llmguard binary to measure; default builds ./cmd/llmguard")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if a.connections < 9 || a.connections > 9000 || a.streams < 0 || a.streams > 9000 || a.bodies < 0 || a.bodies > 9000 {
		return errors.New("bench hostile: 9 to 9000 connections, and 0 to 9000 streams and bodies")
	}
	provider := fakeprovider.New(fakeprovider.Options{})
	return a.deploy(ctx, provider, func() error { return a.run(ctx, provider) })
}

func (a *attack) run(ctx context.Context, provider *fakeprovider.Server) error {
	orgs := ""
	for i := range 5 {
		key := keys.New(keys.Live)
		a.keys = append(a.keys, key)
		orgs += fmt.Sprintf(`  - id: org%[1]d
    limits: [{name: hour, subject: org, amount: $1000000, window: 1h}]
    users: [{id: u, keys: [{id: main, hash: "%[2]s"}]}]
`, i, keys.Hash(keys.Pepper{}, key))
	}
	var err error
	a.proxy, a.admin, err = a.startRole(ctx, "serve", "serve", func(listen, admin string) string {
		return fmt.Sprintf(attackConfig, listen, admin, a.redis.Addr, provider.BaseURL()) + orgs
	})
	if err != nil {
		return err
	}
	defer a.proxy.Stop()
	alone, err := a.measure(ctx, "alone")
	if err != nil {
		return err
	}
	n := a.connections / 9
	crowd := hostile.Crowd{
		Absent: 4 * n / 3, Unfinished: 4 * n / 3, Unread: a.connections/3 - 2*(4*n/3), Size: 16_000_000,
		Rate: 100_000,
	}
	var under *load.Result
	err = a.under(ctx, crowd, a.keys[1:4], func() error {
		under, err = a.measure(ctx, fmt.Sprintf("with %d hostile connections", a.connections))
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "p99 %.2f times that of being alone; success %.4f of it\n",
		float64(under.Quantile(0.99))/float64(alone.Quantile(0.99)), success(under)/success(alone))
	if a.bodies > 0 {
		err = a.under(ctx, hostile.Crowd{Unfinished: a.bodies / 3, Size: 16_000_000}, a.keys[1:4], func() error {
			_, err := a.measure(ctx, fmt.Sprintf("with %d unfinished bodies of 16 MB", a.bodies/3*3))
			return err
		})
	}
	return errors.Join(err, a.stream(ctx))
}

// success returns the share of calls that were answered.
func success(r *load.Result) float64 { return float64(r.Calls) / float64(r.Calls+r.Errors+r.Dropped) }

// under runs do while orgs attack.
func (a *attack) under(ctx context.Context, crowd hostile.Crowd, keys []string, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, key := range keys {
		all.Go(func() { crowd.Attack(ctx, a.proxy.Addr, key) })
	}
	time.Sleep(a.settle)
	return do()
}

// measure makes the honest org's calls, and prints the results.
func (a *attack) measure(ctx context.Context, name string) (*load.Result, error) {
	before, err := a.proxy.CPU()
	if err != nil {
		return nil, err
	}
	r, err := load.Run(ctx, load.Plan{
		Addr: a.proxy.Addr, Key: a.keys[0], Prompt: load.Prompt{Size: 300}, Connections: 16, Rate: a.rate,
		Warmup: time.Second, Duration: a.lasts, Seed: 1, Mark: func() {},
	})
	if err != nil {
		return nil, err
	}
	after, err1 := a.proxy.CPU()
	held, err2 := a.proxy.Held(a.redis.Addr)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	fmt.Fprintf(a.out, "%s: %.0f %% of a processor, %d calls, %d failed, %d dropped, p50 %v, p99 %v; %v\n", name,
		100*(after-before).Seconds()/(a.lasts+time.Second).Seconds(), r.Calls, r.Errors, r.Dropped,
		r.Quantile(0.5).Round(time.Microsecond), r.Quantile(0.99).Round(time.Microsecond), held)
	return r, nil
}

// stream measures what streams take that are silent for minutes.
func (a *attack) stream(ctx context.Context) error {
	if a.streams == 0 {
		return nil
	}
	before, err := a.proxy.Held(a.redis.Addr)
	if err != nil {
		return err
	}
	const body = `{"model":"gpt-4o-mini","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"[fake: output=9 gap=10m]"}]}`
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range a.streams {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.proxy.Addr)
		if err != nil {
			return err
		}
		open = append(open, c)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // a stream that waited would get a newline after 15 s
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: "+
			"%d\r\n\r\n%s",
			a.keys[4], len(body), body)
		head := make([]byte, 12)
		if _, err := io.ReadFull(c, head); err != nil || !strings.HasSuffix(string(head), "200") {
			return fmt.Errorf("stream %d: %q, %w", len(open), head, err)
		}
	}
	now, err := a.proxy.Held(a.redis.Addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%d slow streams: %.1f kB of memory each\n", a.streams,
		float64(now.RSS-before.RSS)/float64(a.streams))
	return nil
}
