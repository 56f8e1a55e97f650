package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// waiting measures what waiting callers cost a proxy: resident memory and Redis connections,
// beyond what it had before they came.
type waiting struct {
	*bench
	callers, warm, size int
	stream              bool
	lasts               time.Duration
	admin, key          string
	proxy               *child.Process
	out                 io.Writer
}

// wait runs "bench waiting".
func wait(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench waiting", flag.ContinueOnError)
	fs.SetOutput(stderr)
	w := &waiting{bench: &bench{log: stderr}, out: stdout}
	fs.IntVar(&w.callers, "callers", 1000, "callers who wait at once")
	fs.IntVar(&w.warm, "warm", 200, "calls answered before anything is measured")
	fs.IntVar(&w.size, "size", 300, "bytes of a prompt")
	fs.BoolVar(&w.stream, "stream", false, "they ask for streams")
	fs.DurationVar(&w.lasts, "for", time.Minute, "how long they wait")
	fs.StringVar(&w.guard, "llmguard", "", "llmguard binary to measure; default builds ./cmd/llmguard")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if w.callers < 1 || w.callers > 10_000 || w.warm < 0 || w.size < 1 || w.size > 1<<20 {
		return errors.New("bench waiting: 1 to 10,000 callers with prompts of 1 to 1048576 bytes")
	}
	provider := fakeprovider.New(fakeprovider.Options{})
	return w.deploy(ctx, provider, func() error { return w.run(ctx, provider) })
}

func (w *waiting) run(ctx context.Context, provider *fakeprovider.Server) error {
	w.key = keys.New(keys.Live)
	config := w.onePool(provider, w.key, "id: one, concurrency: 1") // one call at a time, so all others wait
	worker, _, err := w.startRole(ctx, "worker", "worker", config)
	if err != nil {
		return err
	}
	defer worker.Stop()
	w.proxy, w.admin, err = w.startRole(ctx, "serve", "serve", config)
	if err != nil {
		return err
	}
	defer w.proxy.Stop()
	if err := w.warmUp(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	busy := make(chan error, 1)
	callers.Go(func() { busy <- w.call(ctx, "[fake: delay=10m]") })
	for len(provider.Log()) <= w.warm {
		select {
		case err := <-busy:
			return fmt.Errorf("the call that all wait for ended: %w", cmp.Or(err, errors.New("it was answered")))
		default:
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	if _, err := w.waitingCallers(ctx); err != nil { // as if it were scraped continuously
		return err
	}
	before, err := w.proxy.Held(w.redis.Addr)
	if err != nil {
		return err
	}
	var failed sync.Once
	began := time.Now()
	for range w.callers {
		callers.Go(func() {
			for ctx.Err() == nil {
				err := w.call(ctx, "")
				if err == nil || ctx.Err() != nil {
					return
				}
				failed.Do(func() { fmt.Fprintln(w.log, "a caller who comes again:", err) })
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	return w.watch(ctx, began, before)
}

// watch measures the proxy while its callers arrive and wait.
func (w *waiting) watch(ctx context.Context, began time.Time, before child.Held) error {
	fmt.Fprintf(w.out, "before: %v\n", before)
	peak := before
	look := func() (child.Held, error) {
		now, err := w.proxy.Held(w.redis.Addr)
		peak.RSS, peak.Anonymous = max(peak.RSS, now.RSS), max(peak.Anonymous, now.Anonymous)
		peak.Connections = max(peak.Connections, now.Connections)
		return now, err
	}
	asked := began
	for {
		if _, err := look(); err != nil {
			return err
		}
		if time.Since(asked) > time.Second {
			asked = time.Now()
			n, err := w.waitingCallers(ctx)
			if err != nil {
				return err
			}
			if n == w.callers {
				break
			}
			if time.Since(began) > 3*time.Minute {
				return fmt.Errorf("only %d of %d callers wait\n%s", n, w.callers, w.proxy.Tail())
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	rush := peak
	now, err := look()
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, "all wait after %v: %v more\n", time.Since(began).Round(100*time.Millisecond), now.Less(before))
	used, err := w.proxy.CPU()
	if err != nil {
		return err
	}
	ends := time.Now().Add(w.lasts)
	for i := 1; time.Now().Before(ends); i++ {
		time.Sleep(min(time.Until(ends), 100*time.Millisecond))
		now, err = look()
		if err != nil {
			return err
		}
		if i%50 == 0 {
			fmt.Fprintf(w.log, "%4.0fs %v more\n", time.Since(began).Seconds(), now.Less(before))
		}
	}
	total, err := w.proxy.CPU()
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, "while they wait: %.1f %% of a processor\n", float64(total-used)/float64(w.lasts)*100)
	fmt.Fprintf(w.out, "at the end: %v more\nmost, while they came: %v more\nmost: %v more\n", now.Less(before),
		rush.Less(before), peak.Less(before))
	return nil
}

// waitingCallers returns the number from the proxy's metrics.
func (w *waiting) waitingCallers(ctx context.Context) (int, error) {
	text, err := get(ctx, "http://"+w.admin+"/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "\nllmguard_proxy_waiting_callers ")
	number, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(number)
}

// warmUp makes ordinary calls sequentially.
func (w *waiting) warmUp(ctx context.Context) error {
	for range w.warm {
		if err := w.call(ctx, ""); err != nil {
			return err
		}
	}
	return nil
}

// clients keeps its connections, because each waiting caller has its own.
var clients = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000}}

// call makes one call like an OpenAI SDK.
func (w *waiting) call(ctx context.Context, directive string) error {
	text := directive + strings.Repeat("wait for it ", w.size/12+1)[:w.size]
	body := fmt.Sprintf(`{"model":"gpt-4o-mini","max_tokens":50,"stream":%t,"messages":[{"role":"user","content":%q}]}`,
		w.stream, text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.proxy.Addr+"/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + w.key, "Content-Type": "application/json", "Accept": "application/json",
		"User-Agent": "OpenAI/JS 6.49.0", "X-Stainless-Lang": "js", "X-Stainless-Package-Version": "6.49.0",
		"X-Stainless-OS":   "Linux",
		"X-Stainless-Arch": "x64", "X-Stainless-Runtime": "node", "X-Stainless-Runtime-Version": "v22.0.0",
		"X-Stainless-Retry-Count": "0",
		"Accept-Language":         "*", "Sec-Fetch-Mode": "cors", "Accept-Encoding": "identity",
	} {
		req.Header.Set(name, value)
	}
	_, err = do(clients, req, http.StatusOK)
	return err
}
