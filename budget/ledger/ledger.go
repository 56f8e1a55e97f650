package ledger

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// Ledger records what orgs were charged: entries, sums, and corrections of both. It is safe for concurrent use.
type Ledger struct {
	o       Options
	metrics *metrics
}

// Options are what a ledger needs of the store that charges. All but Metrics are required; budget.New sets them.
type Options struct {
	Redis redisconn.DB
	Pages *Pages
	// Places lists the places in which an org may have data, of earlier spreads too.
	Places func(ctx context.Context, org string) ([]string, error)
	// Place chooses the part of its org in which a call counts, unless it was chosen before.
	Place func(Call) Call
	// Now estimates Redis's time.
	Now func() time.Time
	// Adjust and Export run the scripts of these names. The time precedes the arguments. Adjust asks for
	// them again if Redis's time is a different one.
	Adjust func(ctx context.Context, keysAndArgs KeysAndArgs) (verdict string, head []int64, err error)
	Export func(ctx context.Context, keys []string, args ...any) (reply string, err error)
	// Fault adds to an error what failed, and whether the store is unavailable or full.
	Fault func(what string, err error) error
	// Labels are the labels by which days are summed.
	Labels *SummedLabels

	Length           int64         // of an org's stream of entries, approximately at most
	Life, RollupLife time.Duration // of entries and of a day's sums
	// JobLife and BatchLife are how long the cost of a job and of a batch can be read after its last charge.
	JobLife, BatchLife time.Duration

	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: not registered
}

// KeysAndArgs returns the KEYS and ARGV of a script at Redis's time.
type KeysAndArgs func(now time.Time) (keys []string, args []any, err error)

// New returns the ledger of a store.
func New(o Options) *Ledger { return &Ledger{o, newMetrics(o.Metrics)} }
