package admin

import (
	"errors"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/wire"
)

// BatchLine is a batch in a list: its progress and cost.
type BatchLine struct {
	Batch
	Key      string     `json:"key" fact:"key"`
	Model    string     `json:"model" col:"model" fact:"model"`
	Endpoint string     `json:"endpoint" fact:"endpoint"`
	Lines    int64      `json:"lines" col:"lines;=lines" fact:"lines"`
	Done     int64      `json:"lines_done" fact:"done"` // includes failed ones
	Failed   int64      `json:"lines_failed" col:"failed" fact:"failed"`
	Charged  int64      `json:"charged_nano_usd" col:"cost;usd" fact:"cost so far;usd"`
	Estimate int64      `json:"estimated_nano_usd" fact:"estimated;usd"`
	Created  time.Time  `json:"created_at" col:"created;minute" fact:"created;minute"`
	Expires  time.Time  `json:"expires_at" fact:"expires;minute"`
	Ended    *time.Time `json:"ended_at" fact:"ended;minute"` // null until it ends
}

func lineOf(b *batch.Batch) BatchLine {
	good, bad := b.Done()
	l := BatchLine{
		Batch: viewBatch(b), Key: b.Key, Model: b.Model, Endpoint: b.Endpoint.Path(), Lines: b.Total, Done: good + bad,
		Failed:  bad,
		Charged: b.Charged, Estimate: b.Estimate, Created: b.Created.UTC(), Expires: b.Expires.UTC(),
	}
	if at := b.Ended().UTC(); b.Status.Terminal() {
		l.Ended = &at
	}
	return l
}

type batchPage struct {
	page[BatchLine]
	HasMore bool `json:"has_more"`
}

type batchHandler struct{ base }

const mostBatches = 100

// listBatches lists the batches of one org or of all, unfinished ones first.
func (h *batchHandler) listBatches(c *call) (any, error) {
	if h.opts.Batches == nil {
		return nil, noWork("batches")
	}
	q := c.r.URL.Query()
	f := batch.Filter{User: q.Get("user"), Open: q.Get("status") == "open"}
	if s := q.Get("status"); s != "" && s != "open" {
		return nil, invalid("status", "status must be open; omit it for all batches")
	}
	org := q.Get("org")
	if org != "" {
		if err := h.dir.known(org); err != nil {
			return nil, err
		}
	}
	f.Orgs = slices.Sorted(slices.Values(h.dir.orgsOf(org)))
	list, more, err := h.opts.Batches.All(c.r.Context(), f, mostBatches)
	if err != nil {
		return nil, err
	}
	return batchPage{views(slices.Values(list), lineOf), more}, nil
}

func (h *batchHandler) getBatch(c *call) (any, error) {
	if h.opts.Batches == nil {
		return nil, noWork("batches")
	}
	b, err := h.opts.Batches.Find(c.r.Context(), c.r.PathValue("batch"))
	if err != nil {
		return nil, batchError(err)
	}
	return lineOf(b), nil
}

// Batch is the state of a batch.
type Batch struct {
	ID     string `json:"id" col:"batch" fact:"batch"`
	Org    string `json:"org" col:"org" fact:"org"`
	User   string `json:"user" col:"user" fact:"user"`
	Status string `json:"status" col:"status" fact:"status"`
}

func viewBatch(b *batch.Batch) Batch {
	return Batch{ID: b.ID, Org: b.Org, User: b.User, Status: string(b.Status)}
}

func (h *batchHandler) cancelBatch(c *call) (any, error) {
	if h.opts.Batches == nil {
		return nil, noWork("batches")
	}
	before, err := h.opts.Batches.Batch(c.r.Context(), c.r.PathValue("org"), c.r.PathValue("user"),
		c.r.PathValue("batch"))
	if err != nil {
		return nil, batchError(err)
	}
	return h.endBatch(c, before)
}

func (h *batchHandler) endBatch(c *call, before *batch.Batch) (Batch, error) {
	after, err := h.opts.Batches.Cancel(c.r.Context(), before.Org, before.User, before.ID)
	if err != nil {
		return Batch{}, batchError(err)
	}
	return viewBatch(after), h.audit.commit(c, c.entryOf("cancelBatch", before.Org, before.ID), viewBatch(before),
		viewBatch(after))
}

func batchError(err error) error {
	if errors.Is(err, batch.ErrNotFound) {
		return wire.NotFound("batch", "batch_not_found", "The batch does not exist, or has finished")
	}
	return err
}

func (h *batchHandler) cancelBatchesOf(c *call, org, user, key string) error {
	for after := ""; ; {
		page, more, err := h.opts.Batches.List(c.r.Context(), org, user, after, 100)
		if err != nil {
			return err
		}
		for _, b := range page {
			after = b.ID
			if b.Key != key || b.Status.Terminal() {
				continue
			}
			if _, err := h.endBatch(c, b); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}
