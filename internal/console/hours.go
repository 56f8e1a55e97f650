package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// lastHours is how many UTC hours the chart of a day has; the last one is the current hour.
const lastHours = 24

const hoursAge = 10 * time.Second

// hourly is what was spent in each of the last hours.
type hourly struct {
	From  time.Time // start of the first hour
	Costs map[userID]*hourCosts
	Spent map[userID]pricing.Nano // the sums of Costs
	All   pricing.Nano
}

type hourCosts [lastHours]pricing.Nano

// userID is a user of an org; without User it is the org.
type userID struct{ Org, User string }

var byUserOnly = ledger.By("user")

// hourly reads the last hours of some orgs, one org at a time.
func (h *history) hourly(ctx context.Context, orgs []string) (*hourly, error) {
	to := h.now().UTC().Truncate(time.Hour).Add(time.Hour)
	out := &hourly{
		From: to.Add(-lastHours * time.Hour), Costs: map[userID]*hourCosts{}, Spent: map[userID]pricing.Nano{},
	}
	for _, org := range orgs {
		report, err := h.query(ctx, ledger.Query{
			Orgs: []string{org}, From: out.From, To: to, By: byUserOnly, Step: time.Hour,
		})
		if err != nil {
			return nil, err
		}
		whole := userID{org, ""}
		out.Costs[whole] = &hourCosts{}
		for _, row := range report.Rows {
			one := &hourCosts{}
			for i, cost := range row.Series {
				one[i] = cost
				out.Costs[whole][i] += cost
			}
			if of := (userID{org, row.Values[0]}); of.User != "" {
				out.Costs[of], out.Spent[of] = one, row.Cost
			}
		}
		out.Spent[whole] = report.Total.Cost
		out.All += report.Total.Cost
	}
	return out, nil
}

// shownOrgs bounds the orgs that a list of all orgs reads.
const shownOrgs = 20

// spenders returns the orgs with the highest cost in the last hours first, and whether there are more than n.
func (c *Console) spenders(ctx context.Context, n int) (orgs []string, more bool) {
	orgs = c.o.orgs()
	if h, at, _ := c.hours.load(ctx); !at.IsZero() {
		slices.SortStableFunc(orgs, func(a, b string) int {
			return cmp.Compare(h.Spent[userID{b, ""}], h.Spent[userID{a, ""}])
		})
	}
	return orgs[:min(n, len(orgs))], len(orgs) > n
}

// A jump is an hour in which at least jumpTimes the mean of the other hours was spent, and at least jumpLeast.
const (
	jumpTimes = 3
	jumpLeast = pricing.Nano(1_000_000_000)
)

// jump returns a jump of the current hour or else of the one before, and the mean of the hours before it in which
// something was spent; false if there is none.
func (c *hourCosts) jump() (hour int, mean pricing.Nano, found bool) {
	for _, hour := range []int{lastHours - 1, lastHours - 2} {
		sum, n := pricing.Nano(0), pricing.Nano(0)
		for _, cost := range c[:hour] {
			if cost > 0 {
				sum, n = sum+cost, n+1
			}
		}
		mean := sum / max(n, 1)
		if c[hour] >= jumpLeast && c[hour] >= jumpTimes*mean {
			return hour, mean, true
		}
	}
	return 0, 0, false
}
