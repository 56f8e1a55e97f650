package budget

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

var cpuUsed = regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`)

// serverCPU runs do n times from 50 goroutines and returns Redis's CPU time per operation in us,
// including reads and writes on the network.
func serverCPU(b *testing.B, rdb *redis.Client, n int, do func(i int)) float64 {
	b.Helper()
	now := func() float64 {
		sum := 0.0
		for _, m := range cpuUsed.FindAllStringSubmatch(rdb.Info(b.Context(), "cpu").Val(), -1) {
			s, _ := strconv.ParseFloat(m[1], 64)
			sum += s
		}
		return sum
	}
	do(-1)
	before := now()
	serverTime(b, rdb, n, do)
	return (now() - before) * 1e6 / float64(n)
}

// BenchmarkCaps measures what a deployment's spend cap costs Redis in addition to an org's two
// limits, from hold to settle, and how many calls a second one core could handle with only the cap.
func BenchmarkCaps(b *testing.B) {
	const n = 5000
	ctx := b.Context()
	rdb := shared(b)
	scripts := redisconn.Joined(redistest.DB(rdb), Join(redistest.DB(rdb)))
	caps := []Cap{{Limits: []Limit{costLimit("month", Org, Shape{Kind: Calendar, Amount: 1e15, Calendar: "month"})}}}
	var org, capped float64
	for b.Loop() {
		f := newFixture(b, rdb, Options{Scripts: scripts})
		f.clock.fake = nil
		f.now.Store(time.Now().UnixMicro())
		limits := []Limit{
			costLimit("hour", User, hour(1e15)),
			costLimit("org", Org, Shape{Kind: Bucket, Amount: 1e15, Refill: 5e9, Per: time.Minute}),
		}
		whole := func(caps []Cap) func(int) {
			return func(int) {
				h, err := f.Hold(ctx, Terms{Limits: limits, Caps: caps, Call: f.call(), Max: cost(1234567), Expected: cost(0)})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := f.Settle(ctx, h, Settlement{Actual: cost(234567)}); err != nil {
					b.Fatal(err)
				}
			}
		}
		org += serverCPU(b, rdb, n, whole(nil))
		capped += serverCPU(b, rdb, n, whole(caps))
	}
	b.ReportMetric(org/float64(b.N), "two-limits-us")
	b.ReportMetric((capped-org)/float64(b.N), "cap-us")
	b.ReportMetric(1e6*float64(b.N)/(capped-org), "capped-calls/s")
}
