package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// StorageEntry is the catalogue's entry by which vector stores are charged: its
// per_request is for a megabyte and a day.
const StorageEntry = pricing.Service + "vector-store-storage"

// SearchEntry is the catalogue's entry for a search in a vector store. ContainerEntry
// begins those for the sessions of containers, and their memory follows.
const (
	SearchEntry    = pricing.Service + "vector-store-search"
	ContainerEntry = pricing.Service + "container-"
)

// SessionTime is how long a container runs for one fee. DefaultContainer is the memory of
// those that say none.
const (
	SessionTime      = 20 * time.Minute
	DefaultContainer = "1g"
)

// Megabytes is the unit of StorageEntry, rounded up.
func Megabytes(bytes int64) int64 { return (bytes + 999_999) / 1_000_000 }

const storagePage = 100

// storageEvery is how often the sizes of vector stores are read.
const storageEvery = time.Hour

// storagePace is the pause between two reads of sizes in a process. An org may have
// [owned.MostKept] stores, and their provider has others to serve.
const storagePace = 200 * time.Millisecond

// RunStorage charges for storage until ctx ends. Of all processes one reads the sizes of
// an org's stores in an hour, one size at a time.
func (g *Guard) RunStorage(ctx context.Context) error {
	pace := time.NewTicker(storagePace)
	defer pace.Stop()
	for wait := time.Minute; ; wait = storageEvery / 4 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		if g.ownership == nil {
			continue
		}
		for _, o := range g.Policy().Orgs {
			mine, err := g.ownership.Claim(ctx, o.ID, "storage", storageEvery)
			if err != nil {
				g.log.Warn("storage not charged, will retry", "org", o.ID, "err", err)
			} else if mine {
				g.ChargeStorage(ctx, o, time.Now(), pace.C)
			}
		}
	}
}

// ChargeStorage asks the providers how large the vector stores of an org are, and charges
// each for its days that have ended: for the most it was seen to hold in one. A day is
// charged once, however many processes do this. A store that cannot be asked for is
// charged the next time. Each read of a size waits for a turn.
func (g *Guard) ChargeStorage(ctx context.Context, o *Org, at time.Time, turns <-chan time.Time) {
	for page := (ownership.Page{Oldest: true, Limit: storagePage}); ctx.Err() == nil; {
		list, more, err := g.ownership.List(ctx, o.ID, "", ownership.VectorStore, page)
		if err != nil {
			g.log.Warn("storage not charged, will retry", "org", o.ID, "err", err)
			return
		}
		for _, n := range list {
			select {
			case <-turns:
			case <-ctx.Done():
				return
			}
			page.After = n.ID
			if err := g.chargeStore(ctx, o, n, at); err != nil {
				g.log.Warn("storage not charged, will retry", "org", o.ID, "thing", n.ID, "err", err)
			}
		}
		if !more || len(list) == 0 {
			return
		}
		if err := g.ownership.Renew(ctx, o.ID, "storage", storageEvery); err != nil {
			g.log.Warn("another process may read the same sizes", "org", o.ID, "err", err)
		}
	}
}

// day is what a store is charged for at a time.
const day = int64(24 * time.Hour / time.Second)

// chargeStore charges one store for whole days.
func (g *Guard) chargeStore(ctx context.Context, o *Org, n ownership.Note, at time.Time) error {
	c := Caller{Org: o, User: n.User}
	size, err := g.storeSize(ctx, c, n)
	if errors.Is(err, ErrNotOwned) && at.Unix()-n.Paid >= 2*day { // one 404 may pass
		return g.ForgetThing(ctx, c, n)
	}
	if err != nil {
		return err
	}
	n.Bytes = max(n.Bytes, size)
	for at.Unix()-n.Paid >= day {
		if err := g.chargeDay(ctx, c, n); err != nil {
			return err
		}
		n.Paid, n.Bytes = n.Paid+day, size
	}
	return g.ChangeThing(ctx, c, n)
}

// EndStorage charges for the day that has begun of a vector store that is about to be
// deleted.
func (g *Guard) EndStorage(ctx context.Context, c Caller, n ownership.Note, at time.Time) error {
	c.User = n.User
	size, err := g.storeSize(ctx, c, n)
	if errors.Is(err, ErrNotOwned) {
		return nil
	}
	if err != nil {
		return err
	}
	for n.Bytes = max(n.Bytes, size); n.Paid < at.Unix(); n.Paid += day {
		if err := g.chargeDay(ctx, c, n); err != nil {
			return err
		}
	}
	return nil
}

// storeSize asks the provider how many bytes a store takes. The error is ErrNotOwned when
// there is no such store any more.
func (g *Guard) storeSize(ctx context.Context, c Caller, n ownership.Note) (int64, error) {
	status, body, err := g.Read(ctx, c.Org, n, providers.Request{Method: http.MethodGet, Path: "/vector_stores/" + n.ID})
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

// chargeDay charges a vector store of n.Bytes for the day that begins at n.Paid, once.
// What was stored has been stored: no limit refuses it, and all that count cost have it.
func (g *Guard) chargeDay(ctx context.Context, c Caller, n ownership.Note) error {
	units := Megabytes(n.Bytes)
	if units == 0 {
		return nil
	}
	plan, err := g.Fee(c, n.Provider, "vector_stores", StorageEntry, units)
	if err != nil {
		return err
	}
	cost, err := plan.Price.Charge(pricing.Usage{Requests: units}, plan.terms)
	if err != nil || cost == 0 {
		return err
	}
	_, err = g.budget.Ledger.Adjust(ctx, budget.Adjustment{
		ID: storageID(n),
		Call: budget.Call{
			Org: c.Org.ID, User: c.User, Model: StorageEntry, Provider: n.Provider,
			Endpoint: "vector_stores", PriceVersion: plan.Price.Version,
		},
		Amount: cost, By: "llmguard", Limits: plan.Limits,
		Reason: fmt.Sprintf("storage of vector store %s: %d MB for the day from %s", n.ID, units,
			time.Unix(n.Paid, 0).UTC().Format(time.DateTime)),
	})
	if errors.Is(err, budget.ErrConflict) { // another process has charged it, by another size
		return nil
	}
	return err
}

// storageID is the same for the same day, whoever charges it.
func storageID(n ownership.Note) string {
	sum := sha256.Sum256([]byte(n.ID))
	return "storage." + hex.EncodeToString(sum[:16]) + "." + strconv.FormatInt(n.Paid, 10)
}
