package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/tenants"
)

type batchesView struct {
	Configured bool
	Orgs       []string
	Org, User  string
	Open       bool
	Batches    []*batch.Batch
	More       bool
}

// batches lists the batches of all orgs, unfinished ones first, then those with the highest cost.
func (c *Console) batches(v *visit) error {
	q := v.r.URL.Query()
	view := batchesView{
		Configured: c.o.Batches != nil, Org: q.Get("org"), User: q.Get("user"),
		Open: q.Get("status") == "open",
	}
	view.Orgs = c.o.orgs()
	if c.o.Batches == nil {
		return v.show("batches", "Batches", view)
	}
	f := batch.Filter{Orgs: view.Orgs, User: view.User, Open: view.Open}
	if view.Org != "" {
		f.Orgs = []string{view.Org}
	}
	var err error
	view.Batches, view.More, err = c.o.Batches.All(v.r.Context(), f, 2*perPage)
	if err != nil {
		return err
	}
	ended := map[bool]int{true: 1}
	slices.SortStableFunc(view.Batches, func(a, b *batch.Batch) int {
		return cmp.Or(ended[a.Status.Terminal()]-ended[b.Status.Terminal()],
			cmp.Compare(max(b.Charged, b.Estimate), max(a.Charged, a.Estimate)))
	})
	return v.show("batches", "Batches", view)
}

func (c *Console) batch(v *visit) error {
	if c.o.Batches == nil {
		return errNotFound
	}
	b, err := c.o.Batches.Batch(v.r.Context(), v.r.PathValue("org"), v.r.PathValue("user"), v.r.PathValue("batch"))
	if err != nil {
		return notFound(err, batch.ErrNotFound)
	}
	return v.show("batch", "Batch", b)
}

// notFound returns errNotFound if err is gone.
func notFound(err, gone error) error {
	if errors.Is(err, gone) {
		return errNotFound
	}
	return err
}

type auditView struct {
	Org, Actor, Problem string
	Lines               []tenants.AuditEntry
	Next                string
}

// audit lists administrators' changes.
func (c *Console) audit(v *visit) error {
	q := v.r.URL.Query()
	view := auditView{Org: q.Get("org"), Actor: q.Get("actor")}
	ask := url.Values{"limit": {"50"}}
	for _, name := range []string{"org", "actor", "after"} {
		if q.Get(name) != "" {
			ask.Set(name, q.Get(name))
		}
	}
	var list struct {
		Data    []tenants.AuditEntry
		HasMore bool `json:"has_more"`
	}
	status, text := v.ask(v.r.Context(), http.MethodGet, "/audit?"+ask.Encode(), nil, &list)
	if status != http.StatusOK {
		view.Problem = problem(text, "The audit could not be read.")
	}
	view.Lines = list.Data
	if list.HasMore && len(list.Data) > 0 {
		view.Next = list.Data[len(list.Data)-1].ID
	}
	return v.show("audit", "Audit", view)
}
