package guard

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// answerCount answers a request to count tokens for a model whose provider does not count them, with the estimate by
// which the call would be held. It takes no quota.
func (g *Guard) answerCount(ctx context.Context, p *Plan, a *Attempt, w http.ResponseWriter) (*Call, error) {
	began := time.Now()
	c, err := g.admission.beginHit(ctx, p, a)
	if err != nil {
		return nil, err
	}
	c.watch.redis(began)
	defer c.finish(ctx)
	if a.Quota != nil { // a job's attempt starts with it
		if err := c.take(ctx, a.Quota); err != nil {
			return c, err
		}
		defer c.give(ctx, a.Quota)
	}
	if err := g.Stopped(p.Caller.Org.ID); err != nil {
		return c, err
	}
	c.Result = Result{Outcome: Completed, Status: http.StatusOK, Ended: true}
	if a.Sent != nil {
		a.Sent()
	}
	c.tell(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	err = written(w.Write([]byte(`{"input_tokens":` + strconv.FormatInt(p.counted, 10) + `}`)))
	c.Result.Relayed = err == nil
	g.metrics.ended(c)
	return c, err
}
