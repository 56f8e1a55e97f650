package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// headerBudget names the run that a call belongs to, and the run's amount if the call may create it.
const headerBudget = "Llmguard-Budget"

// runHandler serves /v1/keys/children: budgets that a key gives to runs.
type runHandler struct {
	opts   *Options
	auth   *authenticator
	bodies *bodyReader
}

// requestHeaders are the headers of requests that llmguard reads itself.
var requestHeaders = []string{
	headerBudget, headerPriority, headerDeadline, guard.HeaderCache, headerWebhook,
}

// misnamed refuses a header with almost the name of one that bounds or directs a call, which would go without it.
// Labels can have such headers.
func misnamed(h http.Header, labels []guard.Label) error {
	for name := range h {
		_, word, ours := strings.Cut(name, "Llmguard-")
		if !ours || slices.Contains(requestHeaders, name) || guard.ReadsHeader(labels, name) {
			continue
		}
		for _, known := range requestHeaders {
			if _, right, _ := strings.Cut(known, "Llmguard-"); settings.Close(word, right) {
				return wire.BadRequest(name, "unknown_parameter", "There is no header %.64q; did you mean %s?", name, known)
			}
		}
	}
	return nil
}

// enter reads the run of the caller's key, and the one that a request names.
func (h *runHandler) enter(x *request, r *http.Request, to *route) error {
	if err := misnamed(r.Header, h.opts.Guard.Policy().Labels); err != nil {
		return err
	}
	runs := h.opts.Guard.Runs
	if x.caller.Run != "" {
		caller, err := runs.Read(r.Context(), x.caller)
		if err != nil {
			return h.past(x, r, to, err)
		}
		if own := caller.Runs[len(caller.Runs)-1]; !own.Of(caller.User, caller.Key, caller.Born) {
			return wrongKey("")
		}
		x.caller = caller
	}
	texts := r.Header.Values(headerBudget)
	if len(texts) == 0 {
		return nil
	}
	if len(texts) > 1 {
		return wire.BadRequest(headerBudget, "invalid_budget", "The header %s is sent %d times; send it once", headerBudget,
			len(texts))
	}
	want, err := parseBudget(texts[0])
	if err != nil {
		return err
	}
	id := want.name
	if !guard.IsRunID(id) {
		id = guard.NewRunID(x.caller, "name "+want.name)
	}
	run, err := runs.Find(r.Context(), x.caller, id)
	if missing, ok := errors.AsType[*wire.Error](err); ok && missing.Code == "run_not_found" {
		run, err = h.begin(x, r, id, want)
	}
	if err != nil {
		return err
	}
	if want.amount > 0 && want.amount != run.Given {
		return &wire.Error{
			Status: http.StatusConflict, Type: "invalid_request_error", Code: "run_exists", Param: headerBudget,
			Message: "The run " + shorten(want.name) + " was created with the amount " + run.Given.String() + ", not " +
				want.amount.String() + ". Leave the amount out, or add to it with POST /v1/keys/children/" + run.ID(),
		}
	}
	x.caller, err = runs.Enter(r.Context(), x.caller, run)
	return err
}

// past decides about a request with the key of a run that failed to be read. If the run has ended, its results can be
// read for as long as the run. Then the key is a wrong one.
func (h *runHandler) past(x *request, r *http.Request, to *route, err error) error {
	ended, _ := errors.AsType[*wire.Error](err)
	if ended == nil || ended.Code != runEndedCode {
		return err
	}
	kept, failed := h.opts.Guard.Runs.Kept(r.Context(), x.caller)
	switch {
	case failed != nil:
		return failed
	case !kept:
		return wrongKey("")
	case !to.results || x.arrival.Class != guard.Reads:
		return err
	}
	x.past = true
	return nil
}

const runEndedCode = "run_budget_reached"

func (h *runHandler) begin(x *request, r *http.Request, id string, want budgetWish) (budget.Run, error) {
	switch {
	case want.amount == 0 || guard.IsRunID(want.name):
		return budget.Run{}, wire.NotFound(headerBudget, "run_not_found", "This key has no open run %.128q. Its first call "+
			"creates it with an amount: %s: amount=5; run=%s", want.name, headerBudget, shorten(want.name))
	case !x.may(runScope):
		return budget.Run{}, lacking(runScope)
	case x.arrival.Class != guard.Spends:
		return budget.Run{}, guard.NoRun(want.name)
	}
	run, _, err := h.opts.Guard.Runs.Create(r.Context(), h.opts.Guard.Policy(), x.caller, guard.RunWish{
		ID: id, Name: want.name, Named: true, Amount: want.amount, Life: want.life,
		Labels: map[string]string{"run": want.name},
	})
	return run, err
}

// budgetWish is a parsed header Llmguard-Budget.
type budgetWish struct {
	name   string
	amount pricing.Nano // 0: it has none
	life   time.Duration
}

// parseBudget parses "amount=5; run=abc; expires=2h".
func parseBudget(text string) (w budgetWish, err error) {
	wrong := func(what string) error {
		return wire.BadRequest(headerBudget, "invalid_budget", "%s: %s. Write it as amount=5; run=abc, with an amount of "+
			"dollars for the first call of the run, and expires=2h if you like", headerBudget, what)
	}
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"`)
		switch name {
		case "":
		case "run":
			w.name = value
		case "amount":
			w.amount, err = pricing.ParseUSD(value)
			if err != nil || w.amount <= 0 {
				return w, wrong("the amount " + shorten(value) + " is not money above 0")
			}
		case "expires":
			w.life, err = guard.RunLife(value)
			if err != nil {
				return w, wrong("expires " + shorten(value) + " is not a duration such as 30m or 2h")
			}
		default:
			return w, wrong("unknown member " + shorten(name))
		}
	}
	if w.name == "" || !ledger.ValidLabelValue(w.name) {
		return w, wrong("the run must be 1 to 128 letters, digits and . _ - : / @ + = ~ # %")
	}
	return w, nil
}

// runBody is the body of requests about runs.
type runBody struct {
	Amount      json.RawMessage   `json:"amount"`
	Add         json.RawMessage   `json:"add_amount"`
	Expires     json.RawMessage   `json:"expires_in"`
	Name        string            `json:"name"`
	Models      []string          `json:"models"`
	Labels      map[string]string `json:"labels"`
	Concurrency int64             `json:"concurrency"`
}

func (h *runHandler) readRun(x *request, r *http.Request) (b runBody, err error) {
	body, err := h.bodies.readRecord(x, r)
	if err != nil {
		return b, err
	}
	return b, decodeRecord(body, &b, `such as {"amount": "$5", "expires_in": "2h"}`)
}

// runMoney parses an amount: "$5", "5" or 5.
func runMoney(param string, raw json.RawMessage) (pricing.Nano, error) {
	n, err := pricing.ParseUSD(strings.Trim(string(raw), `"`))
	if len(raw) == 0 || err != nil {
		return 0, wire.BadRequest(param, "invalid_value", `%s must be money such as "$5" or 0.25`, param)
	}
	return n, nil
}

// all serves GET and POST /v1/keys/children.
func (h *runHandler) all(x *request, r *http.Request, _ string) error {
	if r.Method == http.MethodGet {
		return h.list(x, r)
	}
	b, err := h.readRun(x, r)
	if err != nil {
		return err
	}
	if b.Add != nil {
		return wire.BadRequest("add_amount", "unknown_parameter", "add_amount is for runs that exist; set amount")
	}
	w := guard.RunWish{Name: b.Name, Models: b.Models, Labels: b.Labels, Concurrency: b.Concurrency}
	w.Amount, err = runMoney("amount", b.Amount)
	if err != nil {
		return err
	}
	if len(b.Expires) > 0 && string(b.Expires) != "null" {
		w.Life, err = guard.RunLife(strings.Trim(string(b.Expires), `"`))
		if err != nil || w.Life <= 0 {
			return wire.BadRequest("expires_in", "invalid_value", `expires_in must be seconds, or a duration such as "2h"`)
		}
	}
	d := h.auth.directory.Load()
	run, text, err := h.opts.Guard.Runs.CreateKey(r.Context(), h.opts.Guard.Policy(), x.caller, w, d.Pepper())
	if err != nil {
		return err
	}
	v := guard.ViewRun(&run, budget.RunUse{Remaining: run.Amount}, time.Now())
	v.Key = text
	return x.json(http.StatusOK, v)
}

func (h *runHandler) list(x *request, r *http.Request) error {
	query := r.URL.Query()
	limit, err := limitOf(query, 100, 100)
	if err != nil {
		return err
	}
	page := budget.RunPage{After: query.Get("after"), Limit: limit}
	runs, more, err := h.opts.Guard.Runs.List(r.Context(), x.caller, page)
	if errors.Is(err, budget.ErrNoRun) {
		return wire.BadRequest("after", "invalid_value", "after must be the id of one of your runs")
	}
	if err != nil {
		return err
	}
	uses, err := h.opts.Guard.Runs.Uses(r.Context(), x.caller.Org, runs)
	if err != nil {
		return err
	}
	out := make([]guard.RunView, len(runs))
	for i := range runs {
		out[i] = guard.ViewRun(&runs[i], uses[i], time.Now())
	}
	return x.json(http.StatusOK, listOf(out, more, func(v *guard.RunView) *string { return &v.ID }))
}

// one serves GET, POST and DELETE /v1/keys/children/{id}.
func (h *runHandler) one(x *request, r *http.Request, id string) error {
	runs := h.opts.Guard.Runs
	run, err := runs.Find(r.Context(), x.caller, id)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodPost:
		b, err := h.readRun(x, r)
		if err != nil {
			return err
		}
		add, err := runMoney("add_amount", b.Add)
		if err != nil {
			return err
		}
		change := x.id
		if texts := r.Header.Values("Idempotency-Key"); len(texts) > 0 {
			change, err = keyText(texts)
			if err != nil {
				return err
			}
		}
		run, err = runs.TopUp(r.Context(), x.caller, run, change, add)
		if err != nil {
			return err
		}
	case http.MethodDelete:
		run, err = runs.End(r.Context(), x.caller, run)
		if err != nil {
			return err
		}
	}
	uses, err := runs.Uses(r.Context(), x.caller.Org, []budget.Run{run})
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, guard.ViewRun(&run, uses[0], time.Now()))
}

// runKeys remembers to which runs keys belong, so that calls with them ask the store once. That never changes.
type runKeys struct {
	mu    sync.Mutex
	known map[string]budget.RunOwner // by hash
}

// knownRunKeys bounds the memory for keys of runs.
const knownRunKeys = 10_000

func (k *runKeys) get(hash string) (budget.RunOwner, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.known[hash]
	return o, ok
}

func (k *runKeys) put(hash string, o budget.RunOwner) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil || len(k.known) >= knownRunKeys {
		k.known = map[string]budget.RunOwner{}
	}
	k.known[hash] = o
}

// findRun returns the owner of a key of a run: the key that created it, with the run.
func (a *authenticator) findRun(
	ctx context.Context, text string, ip netip.Addr, now time.Time,
) (p auth.Principal, ok bool, err error) {
	d := a.directory.Load()
	hashes := d.Hashes(text)
	owner, known := a.runs.get(hashes[0])
	if !known {
		// The wrong keys of others do not keep a right one from being looked up, and guesses are not looked up.
		if a.failures.Blocked(ip, now) && !(d.Vouches(text) && a.vouched.AllowN(now, 1)) {
			return p, false, nil
		}
		owner, err = a.opts.Guard.Runs.FindKey(ctx, hashes)
		if errors.Is(err, budget.ErrNoRun) {
			return p, false, nil
		}
		if err != nil {
			return p, false, err
		}
		a.runs.put(hashes[0], owner)
	}
	p, ok = d.Parent(owner.Org, owner.Key, owner.Lineage, now)
	if !ok && a.opts.Missed != nil && !a.failures.Blocked(ip, now) && a.opts.Missed(ctx) { // the key may be newer
		p, ok = a.directory.Load().Parent(owner.Org, owner.Key, owner.Lineage, now)
	}
	p.Run = owner.Run
	return p, ok, nil
}
