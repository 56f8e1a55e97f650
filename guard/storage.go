package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// megabytes converts bytes to the unit of storage fees, rounded up.
func megabytes(bytes int64) int64 { return (bytes + 999_999) / 1_000_000 }

const storagePage = 100

// storageEvery is the interval between reads of the sizes of objects.
const storageEvery = time.Hour

// storagePace is the pause between two reads of sizes in a process. An org may have
// [ownership.MostKept] objects of a kind, and their provider also serves others.
const storagePace = 200 * time.Millisecond

// Storage charges for what providers store for the orgs.
type Storage struct {
	policy      *atomic.Pointer[Policy]
	budget      *budget.Store
	plans       *Planner
	passthrough *Passthrough
	ownership   *ownership.Store
	log         *slog.Logger
}

// Run charges for storage until ctx ends. Only one process reads the sizes of an org's
// objects in an hour, one at a time.
func (s *Storage) Run(ctx context.Context) error {
	pace := time.NewTicker(storagePace)
	defer pace.Stop()
	for wait := time.Minute; ; wait = storageEvery / 4 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		if s.ownership == nil {
			continue
		}
		for _, o := range s.policy.Load().Orgs {
			mine, err := s.ownership.Claim(ctx, o.ID, "storage", storageEvery)
			if err != nil {
				s.log.Warn("storage not charged, will retry", "org", o.ID, "err", err)
			} else if mine {
				s.Charge(ctx, o, time.Now(), pace.C)
			}
		}
	}
}

// Charge reads from the providers how large the objects of an org are whose storage costs money, and charges
// each for its completed days, by the largest size seen in each. A day is charged once, however many
// processes do this. An object that cannot be read is charged the next time. Each read of a size waits for
// a turn.
func (s *Storage) Charge(ctx context.Context, o *Org, at time.Time, turns <-chan time.Time) {
	for _, kind := range wire.Objects() {
		if kind.Storage != "" {
			s.chargeKind(ctx, o, kind.Kind, at, turns)
		}
	}
}

func (s *Storage) chargeKind(ctx context.Context, o *Org, k wire.ObjectKind, at time.Time, turns <-chan time.Time) {
	for page := (ownership.Page{Oldest: true, Limit: storagePage}); ctx.Err() == nil; {
		list, more, err := s.ownership.List(ctx, o.ID, "", k, page)
		if err != nil {
			s.log.Warn("storage not charged, will retry", "org", o.ID, "err", err)
			return
		}
		for _, n := range list {
			select {
			case <-turns:
			case <-ctx.Done():
				return
			}
			page.After = n.ID
			if err := s.charge(ctx, Caller{Org: o}, n, at, false); err != nil {
				s.log.Warn("storage not charged, will retry", "org", o.ID, "thing", n.ID, "err", err)
			}
		}
		if !more || len(list) == 0 {
			return
		}
		if err := s.ownership.Renew(ctx, o.ID, "storage", storageEvery); err != nil {
			s.log.Warn("storage lease not renewed, another process may read the same sizes", "org", o.ID, "err", err)
		}
	}
}

// day is the unit for which storage is charged, in seconds.
const day = int64(24 * time.Hour / time.Second)

// End charges an object that is about to be deleted for the day in progress.
func (s *Storage) End(ctx context.Context, c Caller, n ownership.Note, at time.Time) error {
	return s.charge(ctx, c, n, at, true)
}

// charge charges one object for whole days, and for the day in progress if the object ends.
func (s *Storage) charge(ctx context.Context, c Caller, n ownership.Note, at time.Time, ends bool) error {
	c.User = n.User
	size, err := s.size(ctx, c, n)
	gone := errors.Is(err, ErrNotOwned)
	switch {
	case gone && ends:
		return nil
	case gone && at.Unix()-n.Paid >= 2*day: // a single 404 may be temporary
		return s.record(ctx, s.ownership.Forget, c.Org.ID, n)
	case err != nil:
		return err
	}
	n.Bytes = max(n.Bytes, size)
	for at.Unix()-n.Paid >= day || ends && at.Unix() > n.Paid {
		if err := s.chargeDay(ctx, c, n); err != nil {
			return err
		}
		n.Paid += day
		if !ends {
			n.Bytes = size
		}
	}
	if ends {
		return nil
	}
	return s.record(ctx, s.ownership.Change, c.Org.ID, n)
}

// record writes what was charged, even during a shutdown.
func (s *Storage) record(
	ctx context.Context, write func(context.Context, string, ownership.Note) error, org string, n ownership.Note,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return write(ctx, org, n)
}

// size reads from the provider how many bytes an object takes. The error is ErrNotOwned if
// it no longer exists.
func (s *Storage) size(ctx context.Context, c Caller, n ownership.Note) (int64, error) {
	status, body, err := s.passthrough.Read(ctx, Fetch{
		Org: c.Org, Note: n, Request: providers.Request{Method: http.MethodGet, Path: n.Kind.Object().Path + "/" + n.ID},
	})
	switch {
	case status == http.StatusNotFound:
		return 0, ErrNotOwned
	case err != nil:
		return 0, err
	case status >= 300:
		return 0, fmt.Errorf("the provider answered %d", status)
	}
	var answer struct {
		Bytes  int64  `json:"usage_bytes"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("the provider's %s: %w", n.Kind.Words(), err)
	}
	if answer.Status == "expired" { // its files are gone
		return 0, nil
	}
	return max(answer.Bytes, 0), nil
}

// chargeDay charges an object of n.Bytes for the day that begins at n.Paid, once. The
// storage has already been used, so no limit refuses the charge, and every limit that
// counts cost includes it.
func (s *Storage) chargeDay(ctx context.Context, c Caller, n ownership.Note) error {
	units, o := megabytes(n.Bytes), n.Kind.Object()
	if units == 0 {
		return nil
	}
	plan, err := s.plans.Fee(c, n.Provider, o.Name(), pricing.Service+o.Storage, units)
	if err != nil {
		return err
	}
	cost, err := plan.Price.Charge(pricing.Usage{Requests: units}, plan.terms)
	if err != nil || cost == 0 {
		return err
	}
	_, err = s.budget.Adjust(ctx, ledger.Adjustment{
		ID: storageID(n),
		Call: ledger.Call{
			Org: c.Org.ID, User: c.User, Model: plan.Request.Model, Provider: n.Provider,
			Endpoint: o.Name(), PriceVersion: plan.Price.Version,
		},
		Amount: cost, By: "llmguard",
		Reason: fmt.Sprintf("storage of %s %s: %d MB for the day from %s", n.Kind.Words(), n.ID, units,
			figures.Second(time.Unix(n.Paid, 0))),
	}, plan.Limits)
	if errors.Is(err, ledger.ErrConflict) { // another process has charged it with another size
		return nil
	}
	return err
}

// storageID returns the id of a day's charge, the same in every process.
func storageID(n ownership.Note) string {
	sum := sha256.Sum256([]byte(n.ID))
	return "storage." + hex.EncodeToString(sum[:16]) + "." + strconv.FormatInt(n.Paid, 10)
}
