package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Limits of a what-if: the number of calls, newest first, and the time. One runs at a time.
const (
	whatIfCalls = 50_000
	whatIfTime  = 10 * time.Second
	whatIfUsers = 25 // lines of its table
)

// Form values for limits that do not exist yet.
const (
	newOfOrg  = "+org"
	newOfUser = "+user"
)

// whatIfView is the completed form and the result.
type whatIfView struct {
	Org                         string
	Limits                      []budget.Limit
	Limit, Amount, Window, Mode string
	Days                        int
	MaxCalls                    int64
	MaxTime                     time.Duration
	Problem                     string
	Answer                      *whatIfAnswer
}

// whatIfAnswer compares what happened to the calls with the current limits and with one limit
// changed.
type whatIfAnswer struct {
	Change   string // as text
	From, To time.Time
	Cut      bool     // older calls of the period are omitted
	Past     happened // what happened to the calls
	Policies []simulate.Report
	Users    []whatIfUser
	More     int // users not listed
	Shadow   []simulate.ShadowLine
	Skipped  int
	Took     time.Duration
}

// whatIfUser is a user in the past and under both policies.
type whatIfUser struct {
	Name        string
	Past        happened
	Before, Now simulate.Line
}

// whatIfPage shows what a different limit would have done. One what-if runs at a time.
type whatIfPage struct {
	o      *Options
	trying chan struct{} // holds a token while a what-if runs
}

// show shows what a different limit would have done to an org's last calls.
func (c *whatIfPage) show(v *visit) error {
	o := c.o.Tenants().Org(v.r.PathValue("org"))
	if o == nil || c.o.Simulate == nil {
		return errNotFound
	}
	q := v.r.URL.Query()
	view := whatIfView{
		Org: o.ID, Limit: q.Get("limit"), Amount: strings.TrimSpace(q.Get("amount")),
		Window: strings.TrimSpace(q.Get("window")), Mode: q.Get("mode"),
		Days: daysOf(q), MaxCalls: whatIfCalls, MaxTime: whatIfTime,
	}
	if policy := c.o.Policy().Orgs[o.ID]; policy != nil {
		view.Limits = policy.Limits
	}
	if view.Limit != "" {
		ctx, cancel := context.WithTimeout(v.r.Context(), whatIfTime)
		defer cancel()
		var wrong *whatIfError
		var err error
		switch view.Answer, err = c.try(ctx, &view); {
		case errors.As(err, &wrong):
			view.Problem = wrong.text
		case errors.Is(err, context.DeadlineExceeded):
			view.Problem = fmt.Sprintf("The replay did not finish within %s. Choose fewer days.", figures.Span(whatIfTime))
		case err != nil:
			return err
		}
	}
	return v.show("whatif", "What if?", view)
}

func daysOf(q url.Values) int {
	for _, n := range []int{1, 3, 7, 30} {
		if q.Get("days") == fmt.Sprint(n) {
			return n
		}
	}
	return 1
}

// whatIfError is an error in the completed form.
type whatIfError struct{ text string }

func (e *whatIfError) Error() string { return "console: " + e.text }

func wrongf(format string, args ...any) error { return &whatIfError{fmt.Sprintf(format, args...)} }

// try runs a what-if. Its work is bounded by ctx and whatIfCalls.
func (c *whatIfPage) try(ctx context.Context, view *whatIfView) (*whatIfAnswer, error) {
	select {
	case c.trying <- struct{}{}:
		defer func() { <-c.trying }()
	default:
		return nil, wrongf("Another replay is running. Try again in a moment.")
	}
	began := c.o.Now()
	before, err := c.o.Simulate()
	if err != nil {
		return nil, err
	}
	org := before.Guard.Orgs[view.Org]
	if org == nil {
		return nil, wrongf("The org has no limits in force.")
	}
	changed, words, err := view.change(org)
	if err != nil {
		return nil, err
	}
	answer := &whatIfAnswer{Change: words}
	past := &happenings{users: map[string]*happened{}}
	trace, err := c.lastCalls(ctx, view, answer, past)
	if err != nil {
		return nil, err
	}
	if trace.Len() == 0 {
		return nil, wrongf("The ledger has no calls of the org in this period.")
	}
	after := before
	policy := *before.Guard
	policy.Orgs = maps.Clone(policy.Orgs)
	policy.Orgs[view.Org] = changed
	after.Guard = &policy
	before.Name = "limits in force"
	after.Name = "what if"
	for _, p := range []simulate.Policy{before, after} {
		result, err := simulate.Run(ctx, trace, p, simulate.Options{})
		if err != nil {
			return nil, err
		}
		report, err := result.Report([]string{"user"})
		if err != nil {
			return nil, err
		}
		answer.Policies = append(answer.Policies, report)
	}
	answer.compare(view.Limit, past)
	answer.Took = c.o.Now().Sub(began)
	return answer, nil
}

// lastCalls reads the newest calls of the last days.
func (c *whatIfPage) lastCalls(ctx context.Context, view *whatIfView, answer *whatIfAnswer,
	past *happenings,
) (*simulate.Trace, error) {
	r, read := simulate.NewReader(), 0
	answer.To = c.o.Now()
	answer.From = answer.To.AddDate(0, 0, -view.Days)
	books := c.o.Budget.Ledger
	since, err := ledger.Newest{
		Books: books, Org: view.Org, Span: ledger.Span{From: answer.From, To: answer.To}, Most: whatIfCalls,
	}.Each(ctx, func(e ledger.Entry) error {
		read++
		if read%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		past.entry(e)
		return r.Entry(e)
	})
	if err != nil {
		return nil, err
	}
	if !since.IsZero() {
		answer.From, answer.Cut = since, true
	}
	past.finish()
	return r.Trace()
}

// compare lists the users, those with the largest changes first.
func (a *whatIfAnswer) compare(limit string, past *happenings) {
	a.Past = past.total
	before := map[string]simulate.Line{}
	for _, l := range a.Policies[0].Lines {
		before[l.User] = l
	}
	now := a.Policies[1]
	for _, l := range now.Lines {
		user := whatIfUser{Name: l.User, Before: before[l.User], Now: l}
		if past.users[l.User] != nil {
			user.Past = *past.users[l.User]
		}
		a.Users = append(a.Users, user)
	}
	weight := func(u whatIfUser) int {
		d := u.Now.HeldBackCalls() - u.Before.HeldBackCalls()
		return max(d, -d)
	}
	slices.SortStableFunc(a.Users, func(x, y whatIfUser) int { return weight(y) - weight(x) })
	if len(a.Users) > whatIfUsers {
		a.More, a.Users = len(a.Users)-whatIfUsers, a.Users[:whatIfUsers]
	}
	for _, s := range now.Shadow {
		if s.Limit == limit || strings.HasPrefix(limit, "+") && s.Limit == whatIfName {
			a.Shadow = append(a.Shadow, s)
		}
	}
	for _, n := range now.Skipped {
		a.Skipped += n
	}
}

// whatIfName is the name of a limit that does not exist yet.
const whatIfName = "what-if"

// change returns the org with the limit changed as in the form, and a description of the
// change.
func (v *whatIfView) change(org *guard.Org) (*guard.Org, string, error) {
	out := *org
	if v.Limit == newOfOrg || v.Limit == newOfUser {
		l := budget.Limit{
			ID: whatIfName, Subject: budget.Org, Metric: budget.Cost, Mode: budget.Enforce,
			Shape: budget.Shape{Kind: budget.Window},
		}
		if v.Limit == newOfUser {
			l.Subject = budget.User
		}
		if v.Amount == "" || v.Window == "" {
			return nil, "", wrongf("A new limit needs an amount and a window, such as $5 and 1h.")
		}
		if err := v.fill(&l); err != nil {
			return nil, "", err
		}
		replaceLimits(&out, func(list []budget.Limit) []budget.Limit { return append(slices.Clone(list), l) })
		return &out, "new limit: " + inWords(l), nil
	}
	i := slices.IndexFunc(org.Limits, func(l budget.Limit) bool { return l.ID == v.Limit })
	if i < 0 {
		return nil, "", wrongf("The org has no limit %q.", v.Limit)
	}
	old := org.Limits[i]
	l := old
	if err := v.fill(&l); err != nil {
		return nil, "", err
	}
	// Users with their own amount for the limit keep it.
	replaceLimits(&out, func(list []budget.Limit) []budget.Limit {
		list = slices.Clone(list)
		for k := range list {
			if list[k].ID == old.ID && list[k].Shape == old.Shape {
				subject, only := list[k].Subject, list[k].Only // such as the group of the user
				list[k] = l
				list[k].Subject, list[k].Only = subject, only
			}
		}
		return list
	})
	return &out, old.ID + ": " + inWords(l) + ", instead of " + inWords(old), nil
}

// replaceLimits replaces the lists of limits of an org, of users and of keys with a plan, which
// others may share.
func replaceLimits(o *guard.Org, with func([]budget.Limit) []budget.Limit) {
	o.Limits, o.UserLimits, o.PlanLimits = with(o.Limits), maps.Clone(o.UserLimits), maps.Clone(o.PlanLimits)
	for _, lists := range []map[string][]budget.Limit{o.UserLimits, o.PlanLimits} {
		for id, list := range lists {
			lists[id] = with(list)
		}
	}
}

// fill sets the fields given in the form and keeps the others.
func (v *whatIfView) fill(l *budget.Limit) error {
	if v.Amount != "" {
		q, err := settings.ParseQuantity(v.Amount)
		switch {
		case err != nil:
			return wrongf("Invalid amount: %v.", err)
		case q.Money != (l.Metric == budget.Cost):
			return wrongf("A limit on %s needs %s.", l.Metric,
				map[bool]string{true: "an amount in dollars, such as $5", false: "a plain number"}[l.Metric == budget.Cost])
		}
		l.Shape.Amount = q.N
	}
	if v.Window != "" {
		d, err := settings.ParseDuration(v.Window)
		switch {
		case err != nil:
			return wrongf("Invalid window: %v.", err)
		case !windowed[l.Shape.Kind]:
			return wrongf("%s has no window; leave it empty.", l.ID)
		}
		l.Shape.Window = d
	}
	switch mode := budget.Mode(v.Mode); mode {
	case "":
	case budget.Enforce, budget.Shadow, budget.Off:
		l.Mode = mode
	default:
		return wrongf("Unknown mode %q.", v.Mode)
	}
	if err := l.Validate(); err != nil {
		return wrongf("%v.", err)
	}
	return nil
}

// windowed are the shapes whose length is a window.
var windowed = map[budget.ShapeKind]bool{budget.Window: true, budget.ExactWindow: true, budget.Fixed: true}

// inWords describes a limit on one line.
func inWords(l budget.Limit) string {
	text := amount(l.Metric, l.Shape.Amount)
	switch l.Metric {
	case budget.Cost:
	case budget.Concurrency:
		text += " open calls"
	default:
		text += " " + string(l.Metric)
	}
	switch l.Shape.Kind {
	case budget.Window, budget.ExactWindow:
		text += " in any " + settings.DurationText(l.Shape.Window)
	case budget.Fixed:
		text += " per " + settings.DurationText(l.Shape.Window) + ", fixed"
	case budget.Calendar:
		text += " per " + l.Shape.Calendar
		if l.Shape.Starts != "" {
			text += " from " + l.Shape.Starts
		}
	case budget.Bucket:
		text += fmt.Sprintf(", refilled by %s every %s", amount(l.Metric, l.Shape.Refill), settings.DurationText(l.Shape.Per))
	}
	if l.Subject != budget.Org {
		text += " per " + string(l.Subject)
	}
	switch l.Mode {
	case budget.Shadow:
		text += ", in shadow mode"
	case budget.Off:
		text += ", off"
	}
	return text
}
