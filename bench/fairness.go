package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/bench/child"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// fairness drains, at 100 requests a second, one user with a huge backlog and twenty orgs with
// large ones, while five light orgs submit a job a second each. A proxy, two workers, Redis and
// a provider run as real processes. It measures how long the light orgs wait, how much of the
// quota is used, and the busiest minute at the provider.
type fairness struct {
	*bench
	deep, heavy, split int
	lasts              time.Duration
	proxy              *child.Process
	keys               map[string]string // by user, which is the org's name and a number
	out                io.Writer

	mu   sync.Mutex
	seen []time.Time          // arrivals at the provider
	came map[string]time.Time // by prompt
	sent map[string]time.Time // for light orgs
	mine map[string]int       // calls by org
	from time.Time
}

const (
	fairRate   = 100 // requests per second
	lightOrgs  = 5
	heavyOrgs  = 20
	fairConfig = `listen: %[1]s
admin: {listen: "%[2]s"}
redis: {addresses: ["%[3]s"]}
log: {level: warn, format: json}
providers:
  - {id: upstream, base_url: "%[4]s", api_key: upstream, pools: [{id: all, rpm: %[5]d, max_jobs: 1000000}]}
orgs:
`
)

// fair runs "bench fairness".
func fair(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench fairness", flag.ContinueOnError)
	fs.SetOutput(stderr)
	f := &fairness{
		bench: &bench{log: stderr}, out: stdout, keys: map[string]string{},
		came: map[string]time.Time{}, sent: map[string]time.Time{}, mine: map[string]int{},
	}
	fs.IntVar(&f.deep, "hog", 20_000, "jobs of the hog")
	fs.IntVar(&f.heavy, "heavy", 1000, "jobs of each of twenty heavy orgs")
	fs.IntVar(&f.split, "split", 1, "users among whom the hog's jobs are split")
	fs.DurationVar(&f.lasts, "for", 3*time.Minute, "how long the light orgs go on")
	fs.StringVar(&f.guard, "llmguard", "", "llmguard binary to measure; default builds ./cmd/llmguard")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if f.deep < 400 || f.heavy < 400 || f.split < 1 || f.split > f.deep || f.lasts < 2*time.Minute {
		return errors.New("bench fairness: -hog and -heavy are at least 400 jobs, -split is 1 to -hog users, and -for at " +
			"least 2m")
	}
	if need := int(f.lasts.Seconds() * fairRate * 1.2); f.deep+heavyOrgs*f.heavy < need {
		return fmt.Errorf("bench fairness: in %v more than those jobs would run: %d are needed", f.lasts, need)
	}
	provider := fakeprovider.New(fakeprovider.Options{})
	provider.Script(f.arrive)
	return f.deploy(ctx, provider, func() error { return f.run(ctx, provider.BaseURL()) })
}

func (f *fairness) run(ctx context.Context, upstream string) error {
	orgs := f.orgs()
	config := func(listen, admin string) string {
		return fmt.Sprintf(fairConfig, listen, admin, f.redis.Addr, upstream, fairRate*60) + orgs
	}
	var err error
	f.proxy, _, err = f.startRole(ctx, "serve", "serve", config)
	if err != nil {
		return err
	}
	defer f.proxy.Stop()
	if err := f.backlog(ctx); err != nil {
		return err
	}
	fmt.Fprintf(f.log, "%d jobs wait; %v of draining them begin\n", f.deep+heavyOrgs*f.heavy, f.lasts)
	for _, name := range []string{"worker1", "worker2"} {
		worker, _, err := f.startRole(ctx, name, "worker", config)
		if err != nil {
			return err
		}
		defer worker.Stop()
	}
	if err := f.light(ctx); err != nil {
		return err
	}
	return f.tell()
}

// arrive records a call that reaches the provider.
func (f *fairness) arrive(r *fakeprovider.Request) fakeprovider.Behaviour {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.seen = append(f.seen, now)
	prompt := strings.TrimSpace(r.UserText)
	f.came[prompt] = now
	org, _, _ := strings.Cut(prompt, " ")
	if !f.from.IsZero() && now.Sub(f.from) < time.Minute {
		f.mine[strings.TrimRight(org, "0123456789")]++
	}
	return fakeprovider.Behaviour{}
}

// orgs returns the orgs section of the configuration, with a key for each user.
func (f *fairness) orgs() string {
	var b strings.Builder
	org := func(name string, users int) {
		fmt.Fprintf(&b, "  - id: %s\n    limits: [{name: day, subject: user, amount: $1000000, window: 1d}]\n    users:\n",
			name)
		for u := range users {
			user := name + "-" + strconv.Itoa(u)
			f.keys[user] = keys.New(keys.Live)
			fmt.Fprintf(&b, "      - {id: u%d, keys: [{id: main, hash: %q}]}\n", u, keys.Hash(keys.Pepper{}, f.keys[user]))
		}
	}
	org("hog", f.split)
	for i := range heavyOrgs {
		org("heavy"+strconv.Itoa(i), 1)
	}
	for i := range lightOrgs {
		org("light"+strconv.Itoa(i), 1)
	}
	return b.String()
}

// backlog submits the jobs of the hog and of the heavy orgs.
func (f *fairness) backlog(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range max(f.deep, heavyOrgs*f.heavy) {
		if i < f.deep {
			g.Go(func() error { return f.put(ctx, "hog-"+strconv.Itoa(i%f.split), i) })
		}
		if i < heavyOrgs*f.heavy {
			g.Go(func() error { return f.put(ctx, "heavy"+strconv.Itoa(i%heavyOrgs)+"-0", i) })
		}
	}
	return g.Wait()
}

// light submits a job a second for each light org, and then waits ten more seconds.
func (f *fairness) light(ctx context.Context) error {
	f.mu.Lock()
	f.from = time.Now()
	f.mu.Unlock()
	var g errgroup.Group
	every := time.NewTicker(time.Second / lightOrgs)
	defer every.Stop()
	for i := 0; time.Since(f.from) < f.lasts; i++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
		g.Go(func() error { return f.put(ctx, "light"+strconv.Itoa(i%lightOrgs)+"-0", i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	time.Sleep(10 * time.Second)
	return nil
}

// put submits one job.
func (f *fairness) put(ctx context.Context, user string, n int) error {
	org, _, _ := strings.Cut(user, "-")
	prompt := fmt.Sprintf("%s %d", org, n)
	body := fmt.Sprintf(`{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":%q}]}`, prompt)
	if strings.HasPrefix(org, "light") {
		f.mu.Lock()
		f.sent[prompt] = time.Now()
		f.mu.Unlock()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.proxy.Addr+"/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+f.keys[user])
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", "respond-async")
	_, err = do(clients, req, http.StatusAccepted)
	if err != nil {
		err = fmt.Errorf("%s: %w", user, err)
	}
	return err
}

// tell prints the results.
func (f *fairness) tell() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var waits []time.Duration
	lost := 0
	for prompt, sent := range f.sent {
		came, ok := f.came[prompt]
		if !ok {
			lost++
			continue
		}
		waits = append(waits, came.Sub(sent))
	}
	if len(waits) == 0 {
		return fmt.Errorf("none of %d light jobs arrived, of %d calls", len(f.sent), len(f.seen))
	}
	slices.Sort(waits)
	slices.SortFunc(f.seen, time.Time.Compare)
	most := 0
	used := 0
	i := 0
	settled := f.from.Add(f.lasts - time.Minute) // the last minute, when the quota's initial burst is over
	for j, at := range f.seen {
		for at.Sub(f.seen[i]) >= time.Minute {
			i++
		}
		most = max(most, j-i+1)
		if at.After(settled) && at.Before(f.from.Add(f.lasts)) {
			used++
		}
	}
	fmt.Fprintf(f.out, "light orgs: %d jobs, %d did not arrive, wait p50 %v, p95 %v, most %v\n", len(f.sent), lost,
		waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)*95/100].Round(time.Millisecond),
		waits[len(waits)-1].Round(time.Millisecond))
	fmt.Fprintf(f.out, "quota: %.1f %% used in the last minute, at most %d of %d in any minute the provider saw\n",
		100*float64(used)/(fairRate*60), most, fairRate*60)
	rest := f.mine["hog"] + f.mine["heavy"]
	fmt.Fprintf(f.out, "in the first minute the hog got %.2f %% of what the light ones left; one of %d is %.2f %%\n",
		100*float64(f.mine["hog"])/float64(rest), heavyOrgs+1, 100.0/(heavyOrgs+1))
	return nil
}
