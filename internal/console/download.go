package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

// mostLines is how many lines a download has at most.
const mostLines = "10000"

// saved sends a download with a name such as llmguard-spend-20261127T120000Z.csv; that of one that lacks
// lines ends in -incomplete.
func (v *visit) saved(what string, lacks bool, csvOnly func(http.ResponseWriter) error, all any) error {
	format := v.r.URL.Query().Get("format")
	h := v.w.Header()
	name := fmt.Sprintf("llmguard-%s-%s", what, v.o.Now().UTC().Format("20060102T150405Z"))
	if lacks {
		name += "-incomplete"
	}
	name += "." + format
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if format == "json" {
		h.Set("Content-Type", "application/json")
		return json.NewEncoder(v.w).Encode(all)
	}
	h.Set("Content-Type", "text/csv; charset=utf-8")
	return csvOnly(v.w)
}

// known reports whether the page is asked for a format that exists.
func (v *visit) known() bool {
	format := v.r.URL.Query().Get("format")
	return format == "csv" || format == "json"
}

// saveSpend downloads the table of spending, with all groups.
func (c spendPages) saveSpend(v *visit) error {
	a := c.askedOf(v.r, "spend")
	var all admin.Spend
	status, text := v.ask(v.r.Context(), http.MethodGet, a.spendPath(mostLines), nil, &all)
	if status != http.StatusOK || !v.known() {
		v.fail(http.StatusBadRequest, problem(text, "Choose csv or json."))
		return nil
	}
	lacks := all.Since != nil || all.MoreGroups > 0
	return v.saved("spend", lacks, func(w http.ResponseWriter) error { return spendCSV(w, &all) }, all)
}

// spendCSV writes a line for each group; their costs add up to the ledger exactly.
func spendCSV(w http.ResponseWriter, s *admin.Spend) error {
	head := []string{"from", "to"}
	for _, by := range s.By {
		head = append(head, strings.TrimPrefix(by, ledger.LabelPrefix))
	}
	head = append(head, "calls", "input_tokens", "output_tokens", "cost_usd", "cost_before_usd")
	rows := [][]string{head}
	groups := s.Groups
	if s.MoreGroups > 0 {
		others := s.Others
		for range s.By {
			others.Values = append(others.Values, fmt.Sprintf("(%d others)", s.MoreGroups))
		}
		groups = append(groups, others)
	}
	from := s.From
	if s.Since != nil {
		from = *s.Since
	}
	for _, g := range groups {
		line := []string{from.UTC().Format(time.RFC3339), s.To.UTC().Format(time.RFC3339)}
		for _, value := range g.Values {
			line = append(line, ledger.CellText(value))
		}
		before := ""
		if g.Before != nil {
			before = pricing.Nano(*g.Before).Decimal()
		}
		line = append(line, strconv.FormatInt(g.Calls, 10), strconv.FormatInt(g.Input, 10), strconv.FormatInt(g.Output, 10),
			pricing.Nano(g.Cost).Decimal(), before)
		rows = append(rows, line)
	}
	return escape.NewCSV(w).WriteAll(rows)
}

// saveCalls downloads the calls that meet the filter, as llmguard usage export writes them.
func (c spendPages) saveCalls(v *visit) error {
	a := c.askedOf(v.r, "calls")
	if a.Org == "" {
		v.fail(http.StatusBadRequest, "Choose an org.")
		return nil
	}
	var page admin.CallPage
	status, text := v.ask(v.r.Context(), http.MethodGet, a.callsPath(mostLines, ""), nil, &page)
	if status != http.StatusOK || !v.known() {
		v.fail(http.StatusBadRequest, problem(text, "Choose csv or json."))
		return nil
	}
	most, _ := strconv.Atoi(mostLines)
	lacks := page.Next != "" || page.Since != nil || a.Sort == "cost" && len(page.Data) == most
	return v.saved("calls", lacks, func(w http.ResponseWriter) error {
		out := ledger.NewEntryCSV(w)
		for i := range page.Data {
			if err := out.Entry(&page.Data[i]); err != nil {
				return err
			}
		}
		return out.End()
	}, page)
}
