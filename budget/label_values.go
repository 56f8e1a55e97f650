package budget

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/capacity"
)

// SumLabels sets the labels by which the sums of a day are kept, in addition to those of Rollups.
// Calls without a label count under the empty value, so that the sums by a label add up to those
// of all calls since it is in the list. Sums by group are always kept.
func (s *Store) SumLabels(names []string) {
	s.settler.labels.Set(names)
}

// labelValues counts the different values of labels, by org, label and UTC day.
type labelValues struct {
	runner *runner

	mu    sync.Mutex
	day   int64
	known map[[sha256.Size]byte]bool // whether values are counted today, so that Redis is asked once
}

// labelValueBytes is about what Redis needs for a value: its place in the set, and the states of limits by it.
const labelValueBytes = 512

// knownValues bounds the memory for values that are counted already.
const knownValues = 100_000

func newLabelValues(r *runner) *labelValues {
	return &labelValues{runner: r, known: map[[sha256.Size]byte]bool{}}
}

// CountLabel reports whether the value is among the first `most` different values that a label of
// the org has had since midnight UTC, and counts it. A value for which the org has no memory left is
// not counted. It asks Redis only for values that are new to this process. The error is ErrUnavailable.
func (s *Store) CountLabel(ctx context.Context, org, label, value string, most int) (bool, error) {
	v, at := s.values, s.clock.now()
	day := at.Unix() / 86400
	sum := sha256.Sum256([]byte(org + " " + label + " " + value))
	asked := sha256.Sum256([]byte(strconv.Itoa(most) + " " + string(sum[:]))) // another maximum asks again
	if counted, known := v.has(day, asked); known {
		return counted, nil
	}
	err := s.opts.Memory.Admit(ctx, org, labelValueBytes, 25*time.Hour)
	if capacity.IsFull(err) {
		return false, nil
	}
	if err != nil {
		return false, storeError("admit the value of a label", err)
	}
	keys := []string{ledger.Key(org, "label-values:"+label+":"+ledger.DayText(day))}
	reply, err := v.runner.run(ctx, v.runner.scripts.labelValue, keys,
		[]any{base64.RawStdEncoding.EncodeToString(sum[:9]), most, (day*86400 + 90_000) * 1000})
	if err != nil {
		return false, err
	}
	v.add(day, asked, reply == "1")
	return reply == "1", nil
}

func (v *labelValues) has(day int64, sum [sha256.Size]byte) (counted, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.day != day {
		return false, false
	}
	counted, known = v.known[sum]
	return counted, known
}

func (v *labelValues) add(day int64, sum [sha256.Size]byte, counted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.day != day || len(v.known) >= knownValues {
		v.day, v.known = day, map[[sha256.Size]byte]bool{}
	}
	v.known[sum] = counted
}
