package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// maxHits limits the orgs and users that a search lists.
const maxHits = 50

type searchView struct {
	Text string
	Hits []hit
	More bool
	Why  *explained // what an id names that has no page; nil: nothing

	Problem string // why an id could not be explained
}

// hit is a search result.
type hit struct{ Kind, Name, Of, Link string }

// explained is what the API explains about an id.
type explained struct {
	Kind, ID, Org, User, Reason string
	Commands                    []string
	Entries                     []json.RawMessage // of the ledger
}

// link returns the page of what the id names, or "".
func (e *explained) link() string {
	switch {
	case e.Kind == "call" && len(e.Entries) > 0:
		return pathOf("calls", e.Org, e.ID)
	case e.Kind == "job":
		return pathOf("jobs", e.Org, e.ID)
	case e.Kind == "batch":
		return pathOf("batches", e.Org, e.User, e.ID)
	}
	return ""
}

// search finds orgs and users by part of their id, and everything that why explains by its id. A call, job or batch
// redirects to its page.
func (c *Console) search(v *visit) error {
	text := strings.TrimSpace(v.r.URL.Query().Get("q"))
	view := searchView{Text: text}
	if text == "" {
		return v.show("search", "Search", view)
	}
	view.find(c.o.Tenants())
	if len(view.Hits) > 0 {
		return v.show("search", "Search", view)
	}
	var why explained
	status, failed := v.ask(v.r.Context(), http.MethodGet, "/why/"+url.PathEscape(text), nil, &why)
	switch {
	case status == http.StatusOK:
		if link := why.link(); link != "" {
			http.Redirect(v.w, v.r, link, http.StatusSeeOther)
			return nil
		}
		view.Why = &why
	case status != http.StatusNotFound:
		view.Problem = problem(failed, "The id could not be explained.")
	}
	return v.show("search", "Search", view)
}

// find adds the orgs and users, the first of them.
func (s *searchView) find(all settings.Set) {
	lower := strings.ToLower(s.Text)
	for _, o := range all.Orgs {
		if strings.Contains(strings.ToLower(o.ID+" "+o.Name), lower) {
			s.Hits = append(s.Hits, hit{"org", o.ID, o.Name, pathOf("orgs", o.ID)})
		}
		for i := range o.Users {
			if id := o.Users[i].ID; strings.Contains(strings.ToLower(id), lower) || strings.EqualFold(o.ID+"/"+id, s.Text) {
				s.Hits = append(s.Hits, hit{"user", id, o.ID, pathOf("orgs", o.ID, "users", id)})
			}
			if len(s.Hits) > maxHits {
				s.Hits, s.More = s.Hits[:maxHits], true
				return
			}
		}
	}
}
