package console_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
)

// requests records alice's request for $5 more of a limit.
func (r *rig) requests(id, why string) {
	r.t.Helper()
	now := time.Now().UTC()
	one := tenants.RaiseRequest{
		ID: id, Org: "acme", User: "alice", Key: "k1", Limit: "month", Subject: "org", Amount: 5e9, Created: now,
		Until: now.Add(time.Hour), Reason: why, State: tenants.RaisePending,
	}
	e, err := tenants.RaiseEntry("limit_request.create", nil, &one)
	r.must(err)
	_, err = tenants.New(redistest.DB(r.rdb), tenants.Options{}).RequestRaise(r.t.Context(), one, e)
	r.must(err)
}

func (r *rig) raiseStatus(id string) tenants.RaiseStatus {
	r.t.Helper()
	s := tenants.New(redistest.DB(r.rdb), tenants.Options{})
	r.must(s.Load(r.t.Context()))
	return s.Snapshot().RaiseRequest(id).State
}

// What a caller wrote is text on the page, and opening the page decides nothing.
func TestLimitRequestsPage(t *testing.T) {
	s := newRig(t, acme)
	s.requests("lreq_1", `<script>alert(1)</script>" onload="x`)
	b := s.signedIn(viewerKey)
	b.has("/console/limit-requests?id=lreq_1", "&lt;script&gt;alert(1)&lt;/script&gt;", "$5", "acme/alice", "pending")
	b.hasNot("/console/limit-requests?id=lreq_1", "<script>alert", `" onload=`)
	if got := s.raiseStatus("lreq_1"); got != tenants.RaisePending {
		t.Errorf("after a visit: got %s, want pending", got)
	}
	if a := b.act("approve-request", true, "request", "lreq_1", "amount", "$5", "until", "2099-01-01 10:00"); a.status != http.StatusForbidden {
		t.Errorf("approve with a read-only key: got %d, want 403", a.status)
	}
}
