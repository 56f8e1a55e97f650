package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// maxHits limits the orgs and users that a search lists.
const maxHits = 50

type searchView struct {
	Text string
	Hits []hit
	More bool
}

// hit is a search result.
type hit struct{ Kind, Name, Of, Link string }

// search finds orgs and users by part of their id, and calls, jobs and batches by their id. An
// exact id redirects to its page.
func (c *Console) search(v *visit) error {
	text := strings.TrimSpace(v.r.URL.Query().Get("q"))
	view := searchView{Text: text}
	if text == "" {
		return v.show("search", "Search", view)
	}
	exact, err := c.byID(v, text)
	if err != nil {
		return err
	}
	if exact != nil {
		http.Redirect(v.w, v.r, exact.Link, http.StatusSeeOther)
		return nil
	}
	lower := strings.ToLower(text)
	for _, o := range c.o.Tenants().Orgs {
		if strings.Contains(strings.ToLower(o.ID+" "+o.Name), lower) {
			view.Hits = append(view.Hits, hit{"org", o.ID, o.Name, pathOf("orgs", o.ID)})
		}
		for i := range o.Users {
			if id := o.Users[i].ID; strings.Contains(strings.ToLower(id), lower) || strings.EqualFold(o.ID+"/"+id, text) {
				view.Hits = append(view.Hits, hit{"user", id, o.ID, pathOf("orgs", o.ID, "users", id)})
			}
			view.More = len(view.Hits) > maxHits
			if view.More {
				view.Hits = view.Hits[:maxHits]
				return v.show("search", "Search", view)
			}
		}
	}
	return v.show("search", "Search", view)
}

// byID finds something by its unique id; nil if there is none.
func (c *Console) byID(v *visit, id string) (*hit, error) {
	ctx := v.r.Context()
	if strings.HasPrefix(id, "batch_") && c.o.Batches != nil {
		b, err := c.o.Batches.Find(ctx, id)
		if errors.Is(err, batch.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return &hit{Link: pathOf("batches", b.Org, b.User, id)}, nil
	}
	_, call := wire.CallTime(id)
	if !call && !strings.HasPrefix(id, "job_") {
		return nil, nil
	}
	for _, o := range c.o.Tenants().Orgs {
		if !call {
			_, err := c.o.Queue.Job(ctx, o.ID, id)
			if errors.Is(err, queue.ErrNotFound) {
				continue
			}
			return &hit{Link: pathOf("jobs", o.ID, id)}, err
		}
		view, err := c.calls.findCall(ctx, o.ID, id)
		if err != nil {
			return nil, err
		}
		if view != nil {
			return &hit{Link: pathOf("calls", o.ID, id)}, nil
		}
	}
	return nil, nil
}
