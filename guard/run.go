package guard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/providers"
)

// Quota is the provider's quota of one call: of a live one, or claimed together with a
// job. Its methods are for one goroutine.
type Quota interface {
	// Take takes quota for a call that holds its money. After a Give of a grant that grew
	// stale it is called again. With an error nothing is sent, and Run returns it.
	Take(ctx context.Context, c *Call) error
	// Fresh reports whether the request may still be written.
	Fresh() bool
	// Give ends what Take took. The call's Result says what was used of it.
	Give(ctx context.Context, c *Call)
}

// Attempt is one try at a planned call.
type Attempt struct {
	ID     string
	Number int // from 1
	// Quota is where the provider's quota comes from; nil: the call is live, and takes it
	// from its pool.
	Quota Quota
	// Lane is quota.Request.Lane of a live call.
	Lane string
	// Patience is how long a live call waits for its turn to ask the store.
	Patience time.Duration

	// JobID is "" for a live call. The others say more of a job: Created is when it was
	// put, Class its class where nobody waits for it, Alias what the caller knows the
	// response by, if not by the provider's id.
	JobID, Class, Alias string
	Created             time.Time

	Header http.Header // the caller's; only an allow-list goes on
	Query  string
	// Repeats says that the call will be made again when the provider fails: a complete 5xx
	// answer is then returned as *FailureError, and not relayed.
	Repeats bool
	// Send sends the request in place of Forward, for operations whose price is a fee. It
	// calls Call.Paid, and returns providers.ErrStale when fresh has turned false.
	Send func(ctx context.Context, c *Call, fresh func() bool) error
	// Sent is called when the request has been sent and its body is needed no more;
	// nil: nobody is told.
	Sent func()
}

// staleTries is how often a call asks for quota again because its grant grew
// stale before the request could be written: this process was too busy.
const staleTries = 3

// Run makes a call: it holds what the plan may cost, takes the provider's quota, sends the
// request, relays the answer to w, and settles. A call that does not fit is made with the
// model that its org lists in its place, if it fits with that: see Call.Plan.
//
// Without a Call nothing was held, and with the errors *Refusal, *quota.BusyError,
// *BusyError and providers.ErrStale nothing was charged, sent or written, so that the call
// may wait and be run later. For other errors see Forward. A job's end is written, or kept
// in the journal, when Run returns; a live call's soon after.
func (g *Guard) Run(ctx context.Context, p *Plan, a Attempt, w http.ResponseWriter) (*Call, error) {
	q, begin := a.Quota, g.admission.beginOr
	if q == nil {
		live := &liveQuota{guard: g, lane: a.Lane}
		q, begin = live, live.begin
	}
	c, err := begin(ctx, p, a)
	if err != nil {
		return nil, err
	}
	if !a.Created.IsZero() {
		c.Waited = max(c.Hold.At.Sub(a.Created), 0) // both are of Redis's clock
	}
	c.Class, c.Alias = a.Class, a.Alias
	if a.JobID == "" {
		defer c.End(ctx)
	} else {
		defer c.EndNow(ctx)
	}
	for try := 1; ; try++ {
		if err := q.Take(ctx, c); err != nil {
			return c, err
		}
		err := a.send(ctx, c, q, w)
		if try == staleTries || !errors.Is(err, providers.ErrStale) {
			return c, err
		}
	}
}

// send sends the request, and gives back what was taken of the quota.
func (a *Attempt) send(ctx context.Context, c *Call, q Quota, w http.ResponseWriter) error {
	defer q.Give(ctx, c)
	if a.Send != nil {
		return a.Send(ctx, c, q.Fresh)
	}
	return c.Forward(ctx, w, Forwarding{
		Header: a.Header, Query: a.Query, Fresh: q.Fresh, Repeats: a.Repeats, Sent: a.Sent,
	})
}
