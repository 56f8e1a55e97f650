package budget

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// bareText is a minimal token bucket, the yardstick for the cost of a hold.
const bareText = `
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local s = redis.call('HMGET', KEYS[1], 'level', 'ts')
local cap, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local level, ts = tonumber(s[1] or cap), tonumber(s[2] or now)
level = math.min(cap, level + math.floor((now - ts) * rate / 1000000))
local ok = level >= cost
if ok then level = level - cost end
redis.call('HSET', KEYS[1], 'level', string.format('%.0f', level), 'ts', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], 3600000)
return { ok and 1 or 0, string.format('%.0f', level) }
`

// bareBucket formats numbers as our own scripts do; plainBucket passes numbers to redis.call, as
// most limiters do.
var (
	bareBucket  = redisconn.NewScript(bareText)
	plainBucket = redisconn.NewScript(strings.NewReplacer(
		"string.format('%.0f', level), 'ts', string.format('%.0f', now)", "level, 'ts', now").Replace(bareText))
)

var usecPerCall = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=\d+,usec_per_call=([\d.]+)`)

// serverTime runs do n times from 50 goroutines and returns Redis's own time per script in us.
func serverTime(b *testing.B, rdb *redis.Client, n int, do func(i int)) float64 {
	b.Helper()
	ctx := b.Context()
	do(-1) // loads the script
	if err := rdb.ConfigResetStat(ctx).Err(); err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	redistest.Wait(b, all.Wait)
	info := rdb.Info(ctx, "commandstats").Val()
	m := usecPerCall.FindStringSubmatch(info)
	if m == nil {
		b.Fatalf("no evalsha in %s", info)
	}
	us, _ := strconv.ParseFloat(m[1], 64)
	return us
}

// BenchmarkServerTime measures Redis's time for one operation on two limits (a window and a bucket)
// and that of a bare token bucket, in interleaved rounds. Run it with -benchtime=5x and take the
// medians.
func BenchmarkServerTime(b *testing.B) {
	const n = 5000
	ctx := b.Context()
	rdb := shared(b)
	sums := map[string]float64{}
	for b.Loop() {
		f := newFixture(b, rdb, Options{})
		f.clock.fake = nil
		f.now.Store(time.Now().UnixMicro())
		limits := []Limit{
			costLimit("hour", User, hour(1e15)),
			costLimit("org", Org, Shape{Kind: Bucket, Amount: 1e15, Refill: 5e9, Per: time.Minute}),
		}
		holds := make([]*Hold, n+1)
		sums["bare"] += serverTime(b, rdb, n, func(i int) {
			if err := bareBucket.Run(ctx, redistest.DB(rdb), []string{"bare" + strconv.Itoa(i%100)}, 1e12, 5e6, 1000).Err(); err != nil {
				b.Fatal(err)
			}
		})
		sums["plain"] += serverTime(b, rdb, n, func(i int) {
			if err := plainBucket.Run(ctx, redistest.DB(rdb), []string{"plain" + strconv.Itoa(i%100)}, 1e12, 5e6, 1000).Err(); err != nil {
				b.Fatal(err)
			}
		})
		sums["hold"] += serverTime(b, rdb, n, func(i int) { holds[i+1] = f.hold(ctx, limits, 1234567) })
		sums["settle"] += serverTime(b, rdb, n, func(i int) { f.settle(ctx, holds[i+1], 234567) })
		sums["hold+void/2"] += serverTime(b, rdb, n, func(i int) {
			h := f.hold(ctx, limits, 1234567)
			if err := f.Void(ctx, h); err != nil {
				b.Fatal(err)
			}
		})
		limits[0].Shape.Amount = 1
		sums["refused"] += serverTime(b, rdb, n, func(int) {
			if _, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(1234567), Expected: cost(0)}); err == nil {
				b.Fatal("held beyond the limit")
			}
		})
	}
	for name, sum := range sums {
		b.ReportMetric(sum/float64(b.N), name+"-us")
	}
	b.ReportMetric(sums["hold"]/sums["bare"], "hold/bare")
	b.ReportMetric(sums["hold"]/sums["plain"], "hold/plain")
}

// BenchmarkClient measures the client side: CPU time and garbage of this process per call, for a
// hold on two limits and for a bare EVALSHA with as many arguments, from one caller and from 16
// callers whose scripts are joined.
func BenchmarkClient(b *testing.B) {
	rdb := shared(b)
	line := redisconn.Joined(redistest.DB(rdb), Join(redistest.DB(rdb)))
	for _, way := range []struct {
		name    string
		scripts Scripts
		callers int64
	}{{"one by one", redistest.DB(rdb), 1}, {"together", line, 16}} {
		f := newFixture(b, rdb, Options{Scripts: way.scripts})
		f.clock.fake = nil
		f.now.Store(time.Now().UnixMicro())
		limits := []Limit{
			costLimit("hour", User, hour(1e15)),
			costLimit("org", Org, Shape{Kind: Bucket, Amount: 1e15, Refill: 5e9, Per: time.Minute}),
		}
		call := f.call()
		h := f.hold(b.Context(), limits, 1)
		r, err := f.holdRequest(b.Context(), h, 0, f.Store.clock.now())
		if err != nil {
			b.Fatal(err)
		}
		for _, what := range []struct {
			name string
			do   func() error
		}{
			{"bare", func() error {
				return bareArgs.Run(b.Context(), way.scripts, newGroup(r).keys(), newGroup(r).appendArgs(nil)...).Err()
			}},
			{"hold", func() error {
				c := call
				c.ID = call.ID + strconv.FormatInt(f.seq.Add(1), 10)
				h, err := f.Hold(b.Context(), Terms{Limits: limits, Call: c, Max: cost(1234567), Expected: cost(1234567)})
				if err == nil {
					f.leases.untrack(h) // otherwise memory grows during the run
				}
				return err
			}},
		} {
			b.Run(what.name+" "+way.name, func(b *testing.B) {
				b.ReportAllocs()
				before := cpuTime(b)
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var all sync.WaitGroup
				for range way.callers {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if err := what.do(); err != nil {
								b.Error(err)
							}
						}
					})
				}
				redistest.Wait(b, all.Wait)
				b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/1000, "cpu-us/op")
			})
		}
	}
}

// bareArgs takes the arguments of a hold and does nothing with them.
var bareArgs = redisconn.NewScript(`return "held,1,2,3,4,5;1,2,3,4,5;1,2,3,4"`)

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
