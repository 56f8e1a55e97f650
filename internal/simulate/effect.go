package simulate

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

// add replays calls under a single suggestion and appends it.
func (s *suggesting) add(one Suggestion, calls *Trace) error {
	report, err := s.replay(calls, []budget.Limit{one.Limit}, nil)
	if err != nil {
		return err
	}
	one.Effect = report.Total
	for _, l := range report.Lines {
		if l.HeldBackCalls() > 0 {
			one.HeldBack = append(one.HeldBack, l)
		}
	}
	slices.SortStableFunc(one.HeldBack, func(a, b Line) int { return cmp.Compare(b.HeldBackCalls(), a.HeldBackCalls()) })
	s.out.Suggestions = append(s.out.Suggestions, one)
	return nil
}

// together replays all calls under all suggestions.
func (s *suggesting) together() (Line, error) {
	var limits []budget.Limit
	own := map[string][]budget.Limit{}
	for _, one := range s.out.Suggestions {
		if one.User == "" {
			limits = append(limits, one.Limit)
		}
	}
	for _, one := range s.out.Suggestions {
		if one.User == "" {
			continue
		}
		if own[one.User] == nil {
			own[one.User] = slices.Clone(limits)
		}
		for i := range own[one.User] {
			if own[one.User][i].ID == one.Name {
				own[one.User][i] = one.Limit
			}
		}
	}
	report, err := s.replay(s.trace, limits, own)
	return report.Total, err
}

// replay decides by the limits alone: every model is in one pool whose quota never binds.
func (s *suggesting) replay(calls *Trace, limits []budget.Limit, own map[string][]budget.Limit) (Report, error) {
	const pool, plenty = "all", 1 << 40
	set, err := providers.NewSet([]*providers.Provider{{
		ID: pool, BaseURL: &url.URL{Scheme: "http", Host: "localhost"}, Pools: []providers.Pool{{ID: pool}},
	}})
	if err != nil {
		return Report{}, err
	}
	defer set.Close()
	org := &guard.Org{Org: settings.Org{ID: s.out.Org}, Limits: limits, UserLimits: own}
	if known := s.o.Orgs[s.out.Org]; known != nil {
		org.OverLimit, org.MaxWait = known.OverLimit, known.MaxWait
	}
	result, err := Run(s.ctx, calls, Policy{
		Name: "suggested", Guard: &guard.Policy{Orgs: map[string]*guard.Org{org.ID: org}, Providers: set},
		Pools: []queue.Pool{{ID: pool, MaxJobs: plenty, MaxAge: 24 * time.Hour}}, Workers: map[string]int{pool: 1 << 30},
	}, Options{})
	if err != nil {
		return Report{}, err
	}
	return result.Report([]string{"user"})
}
