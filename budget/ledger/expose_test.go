package ledger

import (
	"context"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// What tests of package ledger_test see of this package, because budget, which they settle with, imports it.
const (
	NoPosition = noPosition
	TailSize   = tailSize
	ScanPage   = scanPage
)

var (
	DayOf     = dayOf
	RollupKey = rollupKey
	HoursKey  = hoursKey
)

func (x *Exporter) DieAt(died func(where string) error) { x.died = died }
func (x *Exporter) ForgetOthers()                       { clear(x.waits) }
func (x *Exporter) Release(ctx context.Context)         { x.release(ctx) }
func (x *Exporter) Gaps() float64                       { return testutil.ToFloat64(x.ledger.metrics.exportGaps) }

func (t *Trimmer) Sizes(ctx context.Context, rdb redisconn.DB) (bytes, entries []int64, err error) {
	return t.sizes(ctx, &server{rdb, t.orgs()})
}
