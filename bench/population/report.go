package population

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes results as a table, one per line.
func Print(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "limits\torgs\tcalls go\tholds/s\tsettles/s\tholds/core s\tsettles/core "+
		"s\tactive\tB/user\tB/tombstone\tB/entry\tB in/call\tB out/call\t")
	for _, r := range results {
		way := "one by one"
		if r.Pipelined {
			way = "together"
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", r.Limits, r.Orgs, way,
			r.HoldsHere, r.SettlesHere, r.HoldsCore, r.SettlesCore, r.Active, r.BytesPerUser, r.BytesPerTombstone,
			r.BytesPerEntry, r.InPerCall, r.OutPerCall)
	}
	return t.Flush()
}

// Need is what a deployment needs, computed from a Result.
type Need struct {
	Users, CallsPerSecond float64
	Cores                 float64 // Redis cores, fully used
	Shards                int     // with one core each, used to 60%
	UsersGB               float64 // limits, with all users active
	TombstonesGB          float64
	LedgerGB              float64 // one hour of entries
	InGbit, OutGbit       float64 // network traffic of all shards
	HotOrg                float64 // maximum calls per second of one org
}

const (
	// tombstoneLife is how long a settled call is remembered with the default horizon of an
	// hour: 80 to 90 minutes.
	tombstoneLife = 90 * 60
	busy          = 0.6 // of a core, to leave room for bursts, AOF and replicas
)

// Extrapolate scales the measurements.
func (r Result) Extrapolate(users, callsPerSecond float64) Need {
	perCall := 1/r.HoldsCore + 1/r.SettlesCore
	n := Need{Users: users, CallsPerSecond: callsPerSecond, Cores: callsPerSecond * perCall}
	n.Shards = int(n.Cores/busy) + 1
	n.UsersGB = users * r.BytesPerUser / 1e9
	n.TombstonesGB = callsPerSecond * tombstoneLife * r.BytesPerTombstone / 1e9
	n.LedgerGB = callsPerSecond * 3600 * r.BytesPerEntry / 1e9
	n.InGbit, n.OutGbit = callsPerSecond*r.InPerCall*8/1e9, callsPerSecond*r.OutPerCall*8/1e9
	n.HotOrg = busy / perCall
	return n
}

// Print writes the result as text.
func (n Need) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, `%.0f users, %.0f calls/s: %.1f cores of Redis, %d shards used to %.0f %%
users' limits %.1f GB; tombstones of %d minutes %.1f GB; an hour of ledger %.1f GB, replicas apart
network %.2f Gbit/s to Redis, %.2f from it
one org makes at most %.0f calls/s, on a shard of its own used to %.0f %%
`, n.Users, n.CallsPerSecond, n.Cores, n.Shards, busy*100, n.UsersGB, tombstoneLife/60, n.TombstonesGB, n.LedgerGB,
		n.InGbit, n.OutGbit, n.HotOrg, busy*100)
	return err
}
