package proxy

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
)

// selfHandler shows callers their own models, limits and usage.
type selfHandler struct{ opts *Options }

// ownLimits returns the caller's own limits: what is used, held and left, and when they reset.
func (h *selfHandler) ownLimits(x *request, r *http.Request, _ string) error {
	caller, err := h.opts.Guard.Plans.KnownLabels(x.caller, guard.LabelPlaces{Header: r.Header})
	if err != nil {
		return err
	}
	list, err := h.opts.Guard.Status(r.Context(), caller)
	if err != nil {
		return err
	}
	if list == nil {
		list = []budget.Status{}
	}
	return x.json(http.StatusOK, map[string]any{"object": "list", "data": list})
}

// usageLine is what the caller's user spent on a model on one day. Amounts are nano-USD.
type usageLine struct {
	Day    string `json:"day"`
	Model  string `json:"model"`
	Calls  int64  `json:"calls"`
	Input  int64  `json:"input_tokens"`
	Cached int64  `json:"cached_input_tokens"`
	Output int64  `json:"output_tokens"`
	Cost   int64  `json:"cost_nano_usd"`
	// Estimated is the estimated part of Cost.
	Estimated int64 `json:"estimated_nano_usd"`
}

func newUsageLine(day, model string, s *ledger.Sums) usageLine {
	return usageLine{
		Day: day, Model: model, Calls: s.Calls, Input: s.Input, Cached: s.Cached, Output: s.Output,
		Cost: int64(s.Cost), Estimated: int64(s.Estimated),
	}
}

// maxUsageDays is the maximum number of days per request.
const maxUsageDays = 92

// ownUsage returns what the caller's own user spent, by UTC day and model.
func (h *selfHandler) ownUsage(x *request, r *http.Request, _ string) error {
	from, to, err := usageDays(r, time.Now().UTC())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	report, err := h.opts.Guard.Usage(ctx, x.caller, from, to, ledger.Day, "model")
	if err != nil {
		return err
	}
	lines, total := []usageLine{}, newUsageLine("", "", &report.Total)
	for _, row := range report.Rows {
		lines = append(lines, newUsageLine(row.Values[0], row.Values[1], &row.Sums))
	}
	slices.SortFunc(lines, func(a, b usageLine) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Model, b.Model))
	})
	return x.json(http.StatusOK, map[string]any{
		"object": "list", "from": from.Format(time.DateOnly), "to": to.Add(-1).Format(time.DateOnly), "data": lines,
		"total": map[string]int64{
			"calls": total.Calls, "input_tokens": total.Input, "cached_input_tokens": total.Cached,
			"output_tokens": total.Output,
			"cost_nano_usd": total.Cost, "estimated_nano_usd": total.Estimated,
		},
	})
}

// usageDays parses the first and last UTC day, both today by default.
func usageDays(r *http.Request, now time.Time) (from, to time.Time, err error) {
	q := r.URL.Query()
	days := [2]time.Time{now.Truncate(24 * time.Hour), now.Truncate(24 * time.Hour)}
	for i, name := range []string{"from", "to"} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		days[i], err = time.Parse(time.DateOnly, text)
		if err != nil {
			return from, to, wire.BadRequest(name, "invalid_value", "%s must be a day such as 2026-11-01, not %q", name,
				shorten(text))
		}
	}
	from, to = days[0], days[1].AddDate(0, 0, 1)
	if n := int(to.Sub(from) / (24 * time.Hour)); n < 1 || n > maxUsageDays {
		return from, to, wire.BadRequest("from", "invalid_value", "from and to must span 1 to %d days", maxUsageDays)
	}
	return from, to, nil
}

// modelView is a model in OpenAI's format; its creation time is unknown.
type modelView struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func viewModel(m guard.Model) modelView {
	return modelView{ID: m.ID, Object: "model", OwnedBy: m.Provider}
}

// messagesModel is a model in Anthropic's format. A creation time of 1970 means that it is unknown.
type messagesModel struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Name    string `json:"display_name"`
	Created string `json:"created_at"`
}

func (m modelView) inMessages() messagesModel {
	return messagesModel{Type: "model", ID: m.ID, Name: m.ID, Created: time.Unix(m.Created, 0).UTC().Format(time.RFC3339)}
}

// messagesModels is the only page of a list of models in Anthropic's format.
func messagesModels(list []modelView) map[string]any {
	page := map[string]any{"has_more": false, "first_id": nil, "last_id": nil}
	models := make([]messagesModel, len(list))
	for i, m := range list {
		models[i] = m.inMessages()
	}
	if len(list) > 0 {
		page["first_id"], page["last_id"] = list[0].ID, list[len(list)-1].ID
	}
	page["data"] = models
	return page
}

// listModels lists the models that this key may call and that have a price.
func (h *selfHandler) listModels(x *request, _ *http.Request, _ string) error {
	list := []modelView{}
	for _, m := range h.opts.Guard.Plans.Models(x.caller) {
		list = append(list, viewModel(m))
	}
	if x.wire == wire.Messages {
		return x.json(http.StatusOK, messagesModels(list))
	}
	return x.json(http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (h *selfHandler) getModel(x *request, _ *http.Request, id string) error {
	m, err := h.opts.Guard.Plans.Model(x.caller, id)
	if err != nil {
		return err
	}
	if x.wire == wire.Messages {
		return x.json(http.StatusOK, viewModel(m).inMessages())
	}
	return x.json(http.StatusOK, viewModel(m))
}
