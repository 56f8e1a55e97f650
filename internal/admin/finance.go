package admin

import (
	"bufio"
	"cmp"
	"io"
	"net/http"
	"strconv"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/finance"
	"github.com/llmguard/llmguard/internal/removed"
)

// financeHandler serves exports and statements for accountants.
type financeHandler struct {
	base
	usage *usageHandler
}

// attachment is a response that is a file, with headers that describe it.
type attachment struct {
	kind, name string
	books      *finance.Books
	rows       int
	incomplete string
	write      func(io.Writer) error
}

// Headers of exports and statements, for clients that store the body.
const (
	headerRows        = "Llmguard-Rows"
	headerTotal       = "Llmguard-Total-Usd"
	headerProvisional = "Llmguard-Provisional"
	headerIncomplete  = "Llmguard-Incomplete"
)

// attach streams an attachment. What it consists of has been read already.
func (c *call) attach(a attachment) {
	c.status = http.StatusOK
	h := c.w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Disposition", `attachment; filename="`+a.name+`"`)
	h.Set(headerRows, strconv.Itoa(a.rows))
	h.Set(headerTotal, a.books.Total.Cost.Decimal())
	if a.books.Provisional() {
		h.Set(headerProvisional, "true")
	}
	if a.incomplete != "" {
		h.Set(headerIncomplete, a.incomplete)
	}
	c.w.WriteHeader(c.status)
	out := bufio.NewWriterSize(c.w, 1<<16)
	err := a.write(out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		c.log.Error("export interrupted", "id", c.id, "err", err)
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
}

// month parses the month of the query; the default is the previous one.
func (c *call) month() (finance.Month, error) {
	text := c.r.URL.Query().Get("month")
	if text == "" {
		return finance.MonthOf(c.start).Previous(), nil
	}
	m, err := finance.ParseMonth(text)
	if err != nil {
		return m, invalid("month", "month: %v", err)
	}
	if m.Begin().After(c.start) {
		return m, invalid("month", "month: %s has not begun", m)
	}
	return m, nil
}

func (h *financeHandler) vendor(id string) string {
	if p := h.opts.Policy().Providers.Get(id); p != nil {
		return finance.Vendor(p)
	}
	return id
}

func (h *financeHandler) exportFocus(c *call) (any, error) {
	org, err := h.dir.ledgerOrg(c.r.Context(), c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	q := c.r.URL.Query()
	o := finance.FocusOptions{
		Org: org.ID, OrgName: org.Name, BillingAccount: q.Get("billing_account"), Vendor: h.vendor, Now: c.start,
	}
	o.Month, err = c.month()
	if err != nil {
		return nil, err
	}
	o.By, err = h.by(q.Get("by"))
	if err != nil {
		return nil, err
	}
	format := cmp.Or(q.Get("format"), "csv")
	switch format {
	case "csv":
	case "parquet":
		return nil, invalid("format", "format: %s", removed.Parquet)
	default:
		return nil, invalid("format", "format must be csv")
	}
	f, err := scan(c.r.Context(), h.usage, func() (*finance.Focus, error) {
		return finance.ReadFocus(c.r.Context(), h.opts.Budget.Ledger, o)
	})
	if err != nil {
		return nil, err
	}
	return attachment{
		kind: "text/csv; charset=utf-8", name: o.FileName(format), books: &f.Books, rows: f.Rows(),
		incomplete: f.Incomplete(), write: f.WriteCSV,
	}, nil
}

func (h *financeHandler) getStatement(c *call) (any, error) {
	org, err := h.dir.ledgerOrg(c.r.Context(), c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	o := finance.StatementOptions{Org: org.ID, OrgName: org.Name, Now: c.start}
	o.Month, err = c.month()
	if err != nil {
		return nil, err
	}
	for _, l := range h.labels() {
		o.Labels = append(o.Labels, l.Name)
	}
	format := cmp.Or(c.r.URL.Query().Get("format"), "html")
	if format != "html" && format != "csv" {
		return nil, invalid("format", "format must be html or csv")
	}
	st, err := scan(c.r.Context(), h.usage, func() (*finance.Statement, error) {
		return finance.ReadStatement(c.r.Context(), h.opts.Budget.Ledger, o)
	})
	if err != nil {
		return nil, err
	}
	a := attachment{
		kind: "text/html; charset=utf-8", name: "statement-" + org.ID + "-" + o.Month.String() + "." + format,
		books: &st.Books, rows: st.Lines(), incomplete: st.Incomplete(), write: st.WriteHTML,
	}
	if format == "csv" {
		a.kind, a.write = "text/csv; charset=utf-8", st.WriteCSV
	}
	return a, nil
}

// by parses what rows are split by. A label must be configured, because a misspelled one would
// silently be empty.
func (h *financeHandler) by(text string) (finance.By, error) {
	by, err := finance.ParseBy(text)
	if err != nil {
		return by, invalid("by", "by: %v", err)
	}
	known := map[string]bool{}
	for _, l := range h.labels() {
		known[l.Name] = true
	}
	for _, name := range by.Labels {
		if !known[name] {
			return by, invalid("by", "by: there is no label %.40q in the configuration", name)
		}
	}
	return by, nil
}

func (h *financeHandler) labels() []guard.Label { return h.opts.Policy().Labels }

func (s *Server) financeRoutes() []Operation {
	month := parameter{name: "month", text: "A month such as 2026-11, in UTC; default: the previous one"}
	return []Operation{
		{
			Name: "exportFocus", Method: http.MethodGet, Path: "/orgs/{org}/focus",
			Summary: "Export a month of an org in the format of FOCUS 1.2, with exact costs",
			Query: []parameter{
				month,
				{name: "by", text: "Also split by any of user, key, endpoint and label:NAME, separated by commas"},
				{name: "format", text: "csv, the default"},
				{name: "billing_account", text: "The BillingAccountId; default: the id of the provider"},
			},
			Kinds: []string{"text/csv"}, serve: s.finance.exportFocus,
			Commands: []Command{{Use: "usage focus", Own: true}},
		},
		{
			Name: "getStatement", Method: http.MethodGet, Path: "/orgs/{org}/statement",
			Summary: "Show what an org spent in a month, by model, user, key, label and day",
			Query:   []parameter{month, {name: "format", text: "html or csv; default: html"}},
			Kinds:   []string{"text/html", "text/csv"}, serve: s.finance.getStatement,
			Commands: []Command{{Use: "usage statement", Own: true}},
		},
	}
}
