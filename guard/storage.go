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
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// StorageEntry is the catalogue entry by which vector stores are charged. Its per_request
// fee is for one megabyte and one day.
const StorageEntry = pricing.Service + "vector-store-storage"

// SearchEntry is the catalogue entry for a search in a vector store. ContainerEntry is the
// prefix of the entries for container sessions; their memory size follows.
const (
	SearchEntry    = pricing.Service + "vector-store-search"
	ContainerEntry = pricing.Service + "container-"
)

// SessionTime is how long a container runs for one fee. DefaultContainer is the memory of
// containers that do not specify it.
const (
	SessionTime      = 20 * time.Minute
	DefaultContainer = "1g"
)

// Megabytes converts bytes to the unit of StorageEntry, rounded up.
func Megabytes(bytes int64) int64 { return (bytes + 999_999) / 1_000_000 }

const storagePage = 100

// storageEvery is the interval between reads of the sizes of vector stores.
const storageEvery = time.Hour

// storagePace is the pause between two reads of sizes in a process. An org may have
// [ownership.MostKept] stores, and their provider also serves others.
const storagePace = 200 * time.Millisecond

// Storage charges for what providers store for the orgs.
type Storage struct {
	policy      *atomic.Pointer[Policy]
	budget      *budget.Store
	plans       *Planner
	objects     *Objects
	passthrough *Passthrough
	ownership   *ownership.Store
	log         *slog.Logger
}

// Run charges for storage until ctx ends. Only one process reads the sizes of an org's
// stores in an hour, one at a time.
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

// Charge reads from the providers how large the vector stores of an org are, and charges
// each for its completed days, by the largest size seen in each. A day is charged once,
// however many processes do this. A store that cannot be read is charged the next time.
// Each read of a size waits for a turn.
func (s *Storage) Charge(ctx context.Context, o *Org, at time.Time, turns <-chan time.Time) {
	for page := (ownership.Page{Oldest: true, Limit: storagePage}); ctx.Err() == nil; {
		list, more, err := s.ownership.List(ctx, o.ID, "", ownership.VectorStore, page)
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
			if err := s.chargeStore(ctx, o, n, at); err != nil {
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

// day is the unit for which a store is charged, in seconds.
const day = int64(24 * time.Hour / time.Second)

// chargeStore charges one store for whole days.
func (s *Storage) chargeStore(ctx context.Context, o *Org, n ownership.Note, at time.Time) error {
	c := Caller{Org: o, User: n.User}
	size, err := s.size(ctx, c, n)
	if errors.Is(err, ErrNotOwned) && at.Unix()-n.Paid >= 2*day { // a single 404 may be temporary
		return s.objects.Forget(ctx, c, n)
	}
	if err != nil {
		return err
	}
	n.Bytes = max(n.Bytes, size)
	for at.Unix()-n.Paid >= day {
		if err := s.chargeDay(ctx, c, n); err != nil {
			return err
		}
		n.Paid, n.Bytes = n.Paid+day, size
	}
	return s.objects.Change(ctx, c, n)
}

// End charges a vector store that is about to be deleted for the day in progress.
func (s *Storage) End(ctx context.Context, c Caller, n ownership.Note, at time.Time) error {
	c.User = n.User
	size, err := s.size(ctx, c, n)
	if errors.Is(err, ErrNotOwned) {
		return nil
	}
	if err != nil {
		return err
	}
	for n.Bytes = max(n.Bytes, size); n.Paid < at.Unix(); n.Paid += day {
		if err := s.chargeDay(ctx, c, n); err != nil {
			return err
		}
	}
	return nil
}

// size reads from the provider how many bytes a store takes. The error is ErrNotOwned if
// the store no longer exists.
func (s *Storage) size(ctx context.Context, c Caller, n ownership.Note) (int64, error) {
	status, body, err := s.passthrough.Read(ctx, Fetch{
		Org: c.Org, Note: n, Request: providers.Request{Method: http.MethodGet, Path: "/vector_stores/" + n.ID},
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
		return 0, fmt.Errorf("the provider's vector store: %w", err)
	}
	if answer.Status == "expired" { // its files are gone
		return 0, nil
	}
	return max(answer.Bytes, 0), nil
}

// chargeDay charges a vector store of n.Bytes for the day that begins at n.Paid, once. The
// storage has already been used, so no limit refuses the charge, and every limit that
// counts cost includes it.
func (s *Storage) chargeDay(ctx context.Context, c Caller, n ownership.Note) error {
	units := Megabytes(n.Bytes)
	if units == 0 {
		return nil
	}
	plan, err := s.plans.Fee(c, n.Provider, "vector_stores", StorageEntry, units)
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
			Org: c.Org.ID, User: c.User, Model: StorageEntry, Provider: n.Provider,
			Endpoint: "vector_stores", PriceVersion: plan.Price.Version,
		},
		Amount: cost, By: "llmguard",
		Reason: fmt.Sprintf("storage of vector store %s: %d MB for the day from %s", n.ID, units,
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
