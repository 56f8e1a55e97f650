package guard

import (
	"context"
	"net/http"
	"strconv"
)

// answerCount answers a request to count tokens for a model whose provider does not count them, with the estimate by
// which the call would be held.
func (g *Guard) answerCount(ctx context.Context, p *Plan, a *Attempt, w http.ResponseWriter) (*Call, error) {
	return g.answerHere(ctx, p, a, func(c *Call) error {
		c.Result = Result{Outcome: Completed, Status: http.StatusOK, Ended: true}
		c.tell(w.Header())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		err := written(w.Write([]byte(`{"input_tokens":` + strconv.FormatInt(p.counted, 10) + `}`)))
		c.Result.Relayed = err == nil
		return err
	})
}
