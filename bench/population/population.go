// Package population measures what budgets cost Redis when many users share it unevenly:
// operations per second per Redis core, bytes per active user, per settled call and per ledger
// entry, and bytes on the wire. The figures depend on the machine; Extrapolate estimates from
// them what a larger deployment needs.
package population

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/goredis"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// Config is one simulation.
type Config struct {
	Users, Orgs int     // users are assigned to orgs in turn
	Calls       int     // per pass
	Callers     int     // goroutines
	Skew        float64 // Zipf exponent of users, > 1
	Limits      int     // per call: 2 or 6
	Pipelined   bool    // concurrent callers' scripts share pipelines
	Seed        uint64
}

// Result holds the measurements. Rates are operations per second.
type Result struct {
	Config
	HoldsHere, SettlesHere float64 // with callers and Redis on the cores of this machine
	HoldsCore, SettlesCore float64 // per second of Redis CPU time
	Active                 int     // users that made a call
	HotUser, HotOrg        float64 // share of the busiest user and org in all calls
	BytesPerUser           float64 // all limits of an active user, with everything that belongs to it
	BytesPerTombstone      float64
	BytesPerEntry          float64 // of the ledger
	InPerCall, OutPerCall  float64 // bytes to and from Redis, hold and settlement
}

// block is the number of calls held before they are settled.
const block = 2000

// Run simulates the calls of a population on an empty Redis.
func Run(ctx context.Context, rdb *redis.Client, c Config) (Result, error) {
	r := Result{Config: c}
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return r, err
	}
	db := goredis.New(rdb)
	o := budget.Options{Lease: time.Hour} // nothing expires meanwhile
	if c.Pipelined {
		line := redisconn.Joined(db, budget.Join(db))
		o.Scripts = line
	}
	s := &simulation{Config: c, rdb: rdb, store: budget.New(db, o), users: map[uint64]int{}, orgs: map[int]int{}}
	s.zipf = rand.NewZipf(rand.New(rand.NewPCG(c.Seed, 1)), c.Skew, 1, uint64(c.Users-1))
	s.limits = limitsOf(c.Limits)
	before, err := s.gauge(ctx)
	if err != nil {
		return r, err
	}
	if err := s.passes(ctx); err != nil {
		return r, err
	}
	after, err := s.gauge(ctx)
	if err != nil {
		return r, err
	}
	n := float64(c.Calls)
	r.HoldsHere, r.SettlesHere = n/s.hold.wall.Seconds(), n/s.settle.wall.Seconds()
	r.HoldsCore, r.SettlesCore = n/s.hold.cpu, n/s.settle.cpu
	r.InPerCall, r.OutPerCall = (after.in-before.in)/n, (after.out-before.out)/n
	r.Active = len(s.users)
	for _, calls := range s.users {
		r.HotUser = max(r.HotUser, float64(calls)/n)
	}
	for _, calls := range s.orgs {
		r.HotOrg = max(r.HotOrg, float64(calls)/n)
	}
	return r, s.memory(ctx, &r)
}

// Median runs a simulation several times and returns the run with the median holds per core.
func Median(ctx context.Context, rdb *redis.Client, c Config, rounds int) (Result, error) {
	runs := make([]Result, rounds)
	for i := range runs {
		var err error
		runs[i], err = Run(ctx, rdb, c)
		if err != nil {
			return Result{}, err
		}
	}
	slices.SortFunc(runs, func(a, b Result) int { return cmp.Compare(a.HoldsCore, b.HoldsCore) })
	return runs[len(runs)/2], nil
}

// limitsOf returns two or six limits that never refuse.
func limitsOf(n int) []budget.Limit {
	window := func(d time.Duration) budget.Shape {
		return budget.Shape{Kind: budget.Window, Amount: 1 << 50, Window: d}
	}
	all := []budget.Limit{
		{ID: "user-hour", Subject: budget.User, Metric: budget.Cost, Shape: window(time.Hour)},
		{
			ID: "org-bucket", Subject: budget.Org, Metric: budget.Cost,
			Shape: budget.Shape{Kind: budget.Bucket, Amount: 1 << 50, Refill: 50_000_000_000, Per: time.Hour},
		},
		{ID: "user-minute", Subject: budget.User, Metric: budget.Tokens, Shape: window(time.Minute)},
		{
			ID: "user-month", Subject: budget.User, Metric: budget.Cost,
			Shape: budget.Shape{Kind: budget.Calendar, Amount: 1 << 50, Calendar: "month"},
		},
		{
			ID: "org-month", Subject: budget.Org, Metric: budget.Cost,
			Shape: budget.Shape{Kind: budget.Calendar, Amount: 1 << 50, Calendar: "month"},
		},
		{ID: "key-calls", Subject: budget.Key, Metric: budget.Requests, Shape: window(time.Minute)},
	}
	return all[:n]
}

type simulation struct {
	Config
	rdb    *redis.Client
	store  *budget.Store
	limits []budget.Limit
	zipf   *rand.Zipf
	users  map[uint64]int
	orgs   map[int]int
	seq    int

	hold, settle span
}

// span is the wall time and the Redis CPU time (s) of something.
type span struct {
	wall time.Duration
	cpu  float64
}

// passes holds and settles all calls, block by block.
func (s *simulation) passes(ctx context.Context) error {
	for left := s.Calls; left > 0; left -= block {
		calls := make([]ledger.Call, min(block, left))
		for i := range calls {
			calls[i] = s.next()
		}
		holds := make([]*budget.Hold, len(calls))
		most := budget.Amounts{Cost: 12_345_678, Tokens: 4000}
		err := s.measure(ctx, &s.hold, len(calls), func(i int) (err error) {
			holds[i], err = s.store.Hold(ctx, budget.Terms{Limits: s.limits, Call: calls[i], Max: most, Expected: most})
			return err
		})
		if err != nil {
			return err
		}
		done := budget.Settlement{
			Actual: budget.Amounts{Cost: 2_345_678, Tokens: 1200}, Outcome: "ok", Status: 200,
			Usage: pricing.Usage{Input: 1000, Output: 200}, UpstreamID: "chatcmpl-0123456789abcdef",
		}
		err = s.measure(ctx, &s.settle, len(calls), func(i int) error {
			_, err := s.store.Settle(ctx, holds[i], done)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// next returns the next call, by a user drawn from the skewed distribution.
func (s *simulation) next() ledger.Call {
	user := s.zipf.Uint64()
	org := int(user) % s.Orgs
	s.users[user]++
	s.orgs[org]++
	s.seq++
	return ledger.Call{
		ID: callID(time.Now(), s.seq), Org: "org" + strconv.Itoa(org), User: "user" + strconv.FormatUint(user, 10),
		Key: "key" + strconv.FormatUint(user, 10), Model: "gpt-5", Provider: "openai", Endpoint: "chat.completions",
		PriceVersion: "2026-11-01",
	}
}

// callID returns an id like the proxy's.
func callID(at time.Time, n int) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	var text [10]byte
	ms := at.UnixMilli()
	for i := 9; i >= 0; i-- {
		text[i] = digits[ms&31]
		ms >>= 5
	}
	return fmt.Sprintf("%s%016d", text[:], n)
}

// measure runs do n times from all callers and adds the time to sum.
func (s *simulation) measure(ctx context.Context, sum *span, n int, do func(i int) error) error {
	before, err := s.gauge(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, s.Callers)
	for range s.Callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	sum.wall += time.Since(began)
	after, err := s.gauge(ctx)
	if err != nil {
		return err
	}
	sum.cpu += after.cpu - before.cpu
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// gauge holds figures from Redis INFO.
type gauge struct {
	cpu     float64 // s
	in, out float64 // bytes
}

var infoLine = regexp.MustCompile(`(?m)^(\w+):([\d.]+)`)

func (s *simulation) gauge(ctx context.Context) (gauge, error) {
	var text strings.Builder
	for _, section := range []string{"cpu", "stats"} {
		part, err := s.rdb.Info(ctx, section).Result()
		if err != nil {
			return gauge{}, err
		}
		text.WriteString(part)
	}
	value := map[string]float64{}
	for _, m := range infoLine.FindAllStringSubmatch(text.String(), -1) {
		value[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	return gauge{
		cpu: value["used_cpu_sys"] + value["used_cpu_user"],
		in:  value["total_net_input_bytes"], out: value["total_net_output_bytes"],
	}, nil
}
