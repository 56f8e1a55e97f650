package population_test

import (
	"math"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/bench/population"
	"github.com/llmguard/llmguard/internal/redistest"
)

// A small simulation: all figures are present, and the extrapolation is consistent with them.
func TestPopulation(t *testing.T) {
	rdb := redistest.Start(t).Client()
	var results []population.Result
	for _, limits := range []int{2, 6} {
		r, err := population.Run(t.Context(), rdb, population.Config{
			Users: 2000, Orgs: 20, Calls: 1200, Callers: 8, Skew: 1.1, Limits: limits, Pipelined: limits == 6, Seed: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, figure := range map[string]float64{
			"holds": r.HoldsHere, "settles": r.SettlesHere, "holds of a core": r.HoldsCore, "settles of a core": r.SettlesCore,
			"bytes in": r.InPerCall, "bytes out": r.OutPerCall,
		} {
			if figure <= 0 {
				t.Errorf("%d limits: %s: %v", limits, name, figure)
			}
		}
		// Memory does not depend on the speed of the machine.
		for name, bytes := range map[string][3]float64{
			"user":      {100 * float64(limits) / 2, r.BytesPerUser, 800 * float64(limits) / 2},
			"tombstone": {30, r.BytesPerTombstone, 200}, "entry": {200, r.BytesPerEntry, 1000},
		} {
			if bytes[1] < bytes[0] || bytes[1] > bytes[2] {
				t.Errorf("%d limits: bytes of a %s: %v", limits, name, bytes[1])
			}
		}
		if r.Active < 100 || r.Active > 1200 || r.HotUser < 0.02 || r.HotOrg < r.HotUser {
			t.Errorf("%d limits: %d active users, busiest user %v, org %v", limits, r.Active, r.HotUser, r.HotOrg)
		}
		results = append(results, r)
	}
	if err := population.Print(t.Output(), results); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	r := population.Result{HoldsCore: 20_000, SettlesCore: 20_000, BytesPerUser: 500, BytesPerTombstone: 100, BytesPerEntry: 500, InPerCall: 1000, OutPerCall: 200}
	n := r.Extrapolate(1e6, 50_000)
	if err := n.Print(&text); err != nil {
		t.Fatal(err)
	}
	if n.Cores != 5 || n.Shards != 9 || n.UsersGB != 0.5 || n.TombstonesGB != 27 || n.LedgerGB != 90 || n.InGbit != 0.4 || n.OutGbit != 0.08 || math.Round(n.HotOrg) != 6000 {
		t.Errorf("%+v\n%s", n, text.String())
	}
}
