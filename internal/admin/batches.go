package admin

import (
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/wire"
)

// BatchLine is a batch in a list: where it stands and what it costs.
type BatchLine struct {
	Batch
	Key      string     `json:"key"`
	Model    string     `json:"model"`
	Endpoint string     `json:"endpoint"`
	Lines    int64      `json:"lines"`
	Done     int64      `json:"lines_done"` // of them failed ones, too
	Failed   int64      `json:"lines_failed"`
	Charged  int64      `json:"charged_nano_usd"`
	Estimate int64      `json:"estimated_nano_usd"`
	Created  time.Time  `json:"created_at"`
	Expires  time.Time  `json:"expires_at"`
	Ended    *time.Time `json:"ended_at"` // null: it has not
}

func lineOf(b *batch.Batch) BatchLine {
	good, bad := b.Done()
	l := BatchLine{
		Batch: viewBatch(b), Key: b.Key, Model: b.Model, Endpoint: b.Endpoint.Path(), Lines: b.Total, Done: good + bad, Failed: bad,
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

const mostBatches = 100

// listBatches lists the batches of all orgs, or of one, those that have not ended first.
func (c *call) listBatches() (any, error) {
	if c.o.Batches == nil {
		return nil, noWork("batches")
	}
	q := c.r.URL.Query()
	f := batch.Filter{User: q.Get("user"), Open: q.Get("status") == "open"}
	if s := q.Get("status"); s != "" && s != "open" {
		return nil, wire.BadRequest("status", "invalid_value", "status: expected open, or nothing for all")
	}
	if org := q.Get("org"); org != "" {
		if _, _, err := c.org(org); err != nil {
			return nil, err
		}
		f.Orgs = []string{org}
	} else {
		for _, o := range c.o.Effective().Orgs {
			f.Orgs = append(f.Orgs, o.ID)
		}
		slices.Sort(f.Orgs)
	}
	list, more, err := c.o.Batches.All(c.r.Context(), f, mostBatches)
	if err != nil {
		return nil, err
	}
	lines := make([]BatchLine, len(list))
	for i, b := range list {
		lines[i] = lineOf(b)
	}
	return batchPage{listOf(lines), more}, nil
}

func (c *call) getBatch() (any, error) {
	if c.o.Batches == nil {
		return nil, noWork("batches")
	}
	b, err := c.o.Batches.Find(c.r.Context(), c.r.PathValue("batch"))
	if err != nil {
		return nil, batchError(err)
	}
	return lineOf(b), nil
}
