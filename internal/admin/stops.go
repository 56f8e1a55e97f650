package admin

import (
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

// Stop is stopped spending.
type Stop struct {
	Org    string     `json:"org" col:"org"` // all: the whole deployment
	Since  *time.Time `json:"since" col:"since;minute;-"`
	By     string     `json:"by" col:"by"`
	Reason string     `json:"reason" col:"reason"`
	Source string     `json:"source" col:"source"` // redis, or file: kill_switch of the configuration, without the other fields
}

type stopOrder struct {
	Reason string `json:"reason,omitempty"`
}

type stopHandler struct{ base }

func viewStop(org string, s *tenants.Stop) Stop {
	if org == tenants.AllOrgs {
		org = everyOrg
	}
	return Stop{Org: org, Since: &s.Created, By: s.By, Reason: s.Reason, Source: "redis"}
}

func (h *stopHandler) listStops(*call) (any, error) {
	var out []Stop
	if h.opts.Policy().Stopped {
		out = append(out, Stop{Org: everyOrg, Source: "file"})
	}
	stops := h.opts.Tenants.Snapshot().Stops
	for _, org := range slices.Sorted(maps.Keys(stops)) {
		out = append(out, viewStop(org, stops[org]))
	}
	return listOf(out), nil
}

// stoppedOrgs lists the orgs whose spending is stopped; all stands for the deployment.
func stoppedOrgs(o *Options) []string {
	stops := o.Tenants.Snapshot().Stops
	orgs := slices.Sorted(maps.Keys(stops))
	switch {
	case stops[tenants.AllOrgs] != nil:
		orgs[0] = everyOrg // the empty id sorts first
	case o.Policy().Stopped:
		orgs = slices.Insert(orgs, 0, everyOrg)
	}
	return orgs
}

// named returns the org of the path under which its stop is recorded.
func (h *stopHandler) named(c *call) (string, error) {
	org := c.r.PathValue("org")
	if h.dir.isAll(org) {
		return tenants.AllOrgs, nil
	}
	_, _, err := h.dir.org(org)
	return org, err
}

// stop stops spending. Stopping again changes the reason only.
func (h *stopHandler) stop(c *call) (any, error) {
	org, err := h.named(c)
	if err != nil {
		return nil, err
	}
	e := c.entry(c.r.PathValue("org"), "")
	record, err := change(c, h.audit, e, tenants.StopRef(org), func(s *tenants.Stop) error {
		s.By, s.Reason = c.actor.id, c.why
		return nil
	})
	return viewStop(org, &record), err
}

// resume ends a stop. It cannot end that of the file.
func (h *stopHandler) resume(c *call) (any, error) {
	org := c.r.PathValue("org")
	recorded := org
	if h.dir.isAll(org) {
		recorded = tenants.AllOrgs
	}
	ref := tenants.StopRef(recorded)
	var record tenants.Stop
	old, err := h.opts.Tenants.Get(c.r.Context(), ref, &record)
	if err != nil {
		return nil, err
	}
	if old == "" {
		return nil, wire.NotFound("org", "not_stopped", "%s", h.notStopped(org, recorded))
	}
	return empty{}, h.audit.commit(c, c.entry(org, ""), record, nil, tenants.Change{Ref: ref, Old: old})
}

// notStopped explains why there is no stop to end.
func (h *stopHandler) notStopped(org, recorded string) string {
	switch {
	case h.opts.Policy().Stopped:
		return "Spending is stopped by kill_switch: stop in the configuration file. Change it there and reload"
	case recorded == tenants.AllOrgs:
		return "Not all spending is stopped. Name the org to resume; GET /stops lists them"
	case h.opts.Tenants.Snapshot().Stops[tenants.AllOrgs] != nil:
		return "Org " + org + " is not stopped itself: all spending is. Resume it without naming an org"
	}
	return "The spending of org " + org + " is not stopped"
}
