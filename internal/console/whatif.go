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
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// What a what-if may take: it reads no more calls than this, the newest ones, and
// ends after that time. One runs at a time.
const (
	whatIfCalls = 50_000
	whatIfTime  = 10 * time.Second
	whatIfUsers = 25 // lines of its table
)

// Names of limits that are not there yet, in the form.
const (
	newOfOrg  = "+org"
	newOfUser = "+user"
)

// whatIfView is the form as it was filled in, and the answer.
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

// whatIfAnswer compares the calls as they went with the calls under the limits in
// force and under one changed limit.
type whatIfAnswer struct {
	Change   string // in words
	From, To time.Time
	Cut      bool     // older calls of the period are left out
	Past     happened // what became of the calls when they were made
	Policies []simulate.Report
	Users    []whatIfUser
	More     int // users without a line
	Shadow   []simulate.ShadowLine
	Skipped  int
	Took     time.Duration
}

// whatIfUser is a user in the past and under both.
type whatIfUser struct {
	Name        string
	Past        happened
	Before, Now simulate.Line
}

// whatIfPage asks what another limit would have done. One question runs at a time.
type whatIfPage struct {
	o      *Options
	trying chan struct{} // a what-if is in it
}

// show asks what another limit would have done to an org's last calls.
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
			view.Problem = fmt.Sprintf("%s were not enough. Look at fewer days.", short(whatIfTime))
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

// whatIfError is what is wrong with a filled-in form.
type whatIfError struct{ text string }

func (e *whatIfError) Error() string { return "console: " + e.text }

func wrongf(format string, args ...any) error { return &whatIfError{fmt.Sprintf(format, args...)} }

// try answers a form. Its work is bounded by ctx and whatIfCalls.
func (c *whatIfPage) try(ctx context.Context, view *whatIfView) (*whatIfAnswer, error) {
	select {
	case c.trying <- struct{}{}:
		defer func() { <-c.trying }()
	default:
		return nil, wrongf("Another what-if is running. One runs at a time; try again in a moment.")
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
		return nil, wrongf("The ledger has no call of the org in that time.")
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
	err := c.o.Budget.Ledger.Recent(ctx, view.Org, answer.From, answer.To, func(e budget.Entry) error {
		if read == whatIfCalls {
			answer.From, answer.Cut = e.At, true
			return errEnough
		}
		read++
		if read%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		past.entry(e)
		return r.Entry(e)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	past.finish()
	return r.Trace()
}

// compare puts the users side by side, those with whom most changes first.
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

// whatIfName is the name of a limit that is not there yet.
const whatIfName = "what-if"

// change returns the org with the limit as the form has it, and the change in
// words.
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
		out.Limits, out.UserLimits = append(slices.Clone(org.Limits), l), maps.Clone(org.UserLimits)
		for user, list := range out.UserLimits {
			out.UserLimits[user] = append(slices.Clone(list), l)
		}
		return &out, "a new limit: " + inWords(l), nil
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
	// Users with another amount under the limit's name keep theirs.
	swap := func(list []budget.Limit) []budget.Limit {
		list = slices.Clone(list)
		for k := range list {
			if list[k].ID == old.ID && list[k].Shape == old.Shape {
				list[k] = l
			}
		}
		return list
	}
	out.Limits, out.UserLimits = swap(org.Limits), maps.Clone(org.UserLimits)
	for user, list := range out.UserLimits {
		out.UserLimits[user] = swap(list)
	}
	return &out, old.ID + ": " + inWords(l) + ", instead of " + inWords(old), nil
}

// fill sets what the form says; what it leaves out stays.
func (v *whatIfView) fill(l *budget.Limit) error {
	if v.Amount != "" {
		q, err := settings.ParseQuantity(v.Amount)
		switch {
		case err != nil:
			return wrongf("The amount: %v.", err)
		case q.Money != (l.Metric == budget.Cost):
			return wrongf("The amount of a limit on %s is %s.", l.Metric,
				map[bool]string{true: "money, such as $5", false: "a number"}[l.Metric == budget.Cost])
		}
		l.Shape.Amount = q.N
	}
	if v.Window != "" {
		d, err := settings.ParseDuration(v.Window)
		switch {
		case err != nil:
			return wrongf("The window: %v.", err)
		case l.Shape.Kind != budget.Window && l.Shape.Kind != budget.ExactWindow:
			return wrongf("%s is no sliding window: leave the window empty.", l.ID)
		}
		l.Shape.Window = d
	}
	switch mode := budget.Mode(v.Mode); mode {
	case "":
	case budget.Enforce, budget.Shadow, budget.Off:
		l.Mode = mode
	default:
		return wrongf("There is no mode %q.", v.Mode)
	}
	if err := l.Validate(); err != nil {
		return wrongf("%v.", err)
	}
	return nil
}

// inWords is a limit in a line.
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
		text += " in any " + simulate.Brief(l.Shape.Window)
	case budget.Calendar:
		text += " a " + l.Shape.Calendar
	case budget.Bucket:
		text += fmt.Sprintf(" that refill at %s every %s", amount(l.Metric, l.Shape.Refill), simulate.Brief(l.Shape.Per))
	}
	if l.Subject != budget.Org {
		text += " for each " + string(l.Subject)
	}
	switch l.Mode {
	case budget.Shadow:
		text += ", in shadow mode"
	case budget.Off:
		text += ", off"
	}
	return text
}
