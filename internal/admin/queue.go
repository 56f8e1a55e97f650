package admin

import (
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// QueuePool is a pool in machine-readable form.
type QueuePool struct {
	Pool        string           `json:"pool"`
	Waiting     map[string]int64 `json:"waiting"` // by class
	Tokens      int64            `json:"waiting_tokens"`
	Running     int64            `json:"claimed"`
	Jobs        int64            `json:"open_jobs"`
	Bytes       int64            `json:"open_bytes"`
	MaxJobs     int              `json:"max_jobs"`
	RPM         QueueQuota       `json:"rpm"`
	TPM         QueueQuota       `json:"tpm"`
	ITPM        *QueueQuota      `json:"itpm,omitempty"` // with OTPM instead of TPM: they count apart
	OTPM        *QueueQuota      `json:"otpm,omitempty"`
	Concurrency int              `json:"concurrency"` // 0: no limit
	Paused      bool             `json:"paused"`      // no job is started
	Blocked     float64          `json:"blocked_seconds"`
	Model       string           `json:"blocked_model,omitempty"` // only this model is blocked
	Oldest      *float64         `json:"oldest_seconds"`          // wait of the oldest job; null if none waits
	Dead        int64            `json:"dead_letters"`
	Flows       []QueueFlow      `json:"flows"`
	Parked      []QueueParked    `json:"parked"`
}

// QueueQuota is the use of a quota.
type QueueQuota struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"` // 0: no limit
}

// QueueFlow is the waiting work of one user.
type QueueFlow struct {
	Org    string  `json:"org"`
	User   string  `json:"user"`
	Class  string  `json:"class"`
	Jobs   int64   `json:"jobs"`
	Tokens int64   `json:"tokens"`
	Oldest float64 `json:"oldest_seconds"`
	High   int64   `json:"high"` // jobs of this priority
	Low    int64   `json:"low"`
}

// QueueParked is something paused, and until when.
type QueueParked struct {
	Org   string    `json:"org"`
	User  string    `json:"user,omitempty"` // empty: the whole org
	What  string    `json:"what"`           // all, model, key, key and model
	Until time.Time `json:"until"`
}

// viewPool returns the state of a pool, with the waiting work of the wanted orgs.
func viewPool(ctx context.Context, o *queue.Queue, p queue.Pool, wanted func(org string) bool) (QueuePool, error) {
	d, err := o.Depth(ctx, p.ID)
	if err != nil {
		return QueuePool{}, err
	}
	flows, err := o.Waiting(ctx, p.ID)
	if err != nil {
		return QueuePool{}, err
	}
	parked, err := o.Parked(ctx, p.ID)
	if err != nil {
		return QueuePool{}, err
	}
	v := QueuePool{
		Dead: d.Dead, Pool: p.ID, Waiting: map[string]int64{}, Running: d.Running(), Jobs: d.Jobs, Bytes: d.Bytes,
		MaxJobs: p.MaxJobs,
		RPM:     QueueQuota{d.Rates[0].Used, p.RPM}, Concurrency: p.Concurrency,
		Paused: d.Paused, Blocked: d.Blocked.Seconds(), Model: d.BlockedModel, Flows: []QueueFlow{}, Parked: []QueueParked{},
	}
	tokens := QueueQuota{d.Rates[1].Used, p.TPM}
	if p.Split {
		v.ITPM, v.OTPM = &tokens, &QueueQuota{d.Rates[2].Used, p.OTPM}
	} else {
		v.TPM = tokens
	}
	for class := queue.Interactive; class <= queue.Batch; class++ {
		v.Waiting[class.String()] = d.Waiting[class]
		v.Tokens += d.WaitingTokens[class]
	}
	for _, f := range flows {
		if !wanted(f.Org) {
			continue
		}
		age := max(time.Since(f.Oldest).Seconds(), 0)
		v.Flows = append(v.Flows, QueueFlow{f.Org, f.User, f.Class.String(), f.Jobs, f.Tokens, age, f.High, f.Low})
		if v.Oldest == nil {
			v.Oldest = &age
		}
	}
	for _, one := range parked {
		if one.Org == "" || wanted(one.Org) {
			v.Parked = append(v.Parked, QueueParked{one.Org, one.User, one.What, one.Until.UTC()})
		}
	}
	return v, nil
}

type queueHandler struct{ base }

func (h *queueHandler) wantedPools(c *call, q *queue.Queue) ([]queue.Pool, error) {
	pools, only := q.Pools(), c.r.URL.Query().Get("pool")
	if only == "" {
		return pools, nil
	}
	pools = slices.DeleteFunc(pools, func(p queue.Pool) bool { return p.ID != only })
	if len(pools) == 0 {
		return nil, noPool(q, only, nil)
	}
	return pools, nil
}

func (h *queueHandler) listQueue(c *call, q *queue.Queue) (any, error) {
	wanted, err := h.dir.wants(c)
	if err != nil {
		return nil, err
	}
	pools, err := h.wantedPools(c, q)
	if err != nil {
		return nil, err
	}
	var out []QueuePool
	for _, p := range pools {
		v, err := viewPool(c.r.Context(), q, p, wanted)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return listOf(out), nil
}

// listDead lists the dead letters, newest first within each pool.
func (h *queueHandler) listDead(c *call, q *queue.Queue) (any, error) {
	wanted, err := h.dir.wants(c)
	if err != nil {
		return nil, err
	}
	limit, err := c.most(100)
	if err != nil {
		return nil, err
	}
	pools, err := h.wantedPools(c, q)
	if err != nil {
		return nil, err
	}
	var out []JobLine
	more := false
	for _, p := range pools {
		jobs, rest, err := q.DeadLetters(c.r.Context(), p.ID, "", limit)
		if err != nil {
			return nil, err
		}
		more = more || rest
		for _, j := range jobs {
			if wanted(j.Org) {
				out = append(out, JobLineOf(j))
			}
		}
	}
	return jobPage{listOf(out), more}, nil
}

// Pause is a pause of a pool: of its queue by an operator, or of all its calls by its provider.
type Pause struct {
	Pool    string  `json:"pool"`
	Paused  bool    `json:"paused"`                  // by an operator
	Blocked float64 `json:"blocked_seconds"`         // for how long
	Model   string  `json:"blocked_model,omitempty"` // only this model is blocked
}

func (h *queueHandler) pausePool(c *call, q *queue.Queue) (any, error) {
	pool := c.r.PathValue("pool")
	d, err := q.Depth(c.r.Context(), pool)
	if err != nil {
		return nil, noPool(q, pool, err)
	}
	if err := q.SetPaused(c.r.Context(), pool, true); err != nil {
		return nil, err
	}
	before, after := Pause{Pool: pool, Paused: d.Paused}, Pause{Pool: pool, Paused: true}
	return after, h.audit.commit(c, c.entry("", pool), before, after)
}

// resumePool ends the pauses of a pool: an operator's and its provider's.
func (h *queueHandler) resumePool(c *call, q *queue.Queue) (any, error) {
	pool := c.r.PathValue("pool")
	d, err := q.Depth(c.r.Context(), pool)
	if err != nil {
		return nil, noPool(q, pool, err)
	}
	if err := q.SetPaused(c.r.Context(), pool, false); err != nil {
		return nil, err
	}
	left, err := q.Quota().Resume(c.r.Context(), pool)
	if err != nil {
		return nil, err
	}
	if err := q.Unpark(c.r.Context(), nil); err != nil { // the jobs of the paused model are parked
		return nil, err
	}
	before, after := Pause{pool, d.Paused, left.Seconds(), d.BlockedModel}, Pause{Pool: pool}
	return before, h.audit.commit(c, c.entry("", pool), before, after)
}

// noPool converts the error of a pool that may not be configured.
func noPool(q *queue.Queue, pool string, err error) error {
	var known []string
	for _, p := range q.Pools() {
		known = append(known, p.ID)
	}
	if slices.Contains(known, pool) {
		return err
	}
	return wire.NotFound("pool", "pool_not_found", "There is no pool %.80q in the configuration%s", pool,
		settings.Hint(pool, known))
}
