package admin_test

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
)

// TestDecisionsAreFinal: repeating an approval changes nothing, and another one after it is a conflict that
// says what was decided.
func TestDecisionsAreFinal(t *testing.T) {
	d := deploy(t)
	store := tenants.New(d.rdb, tenants.Options{})
	now := time.Now().UTC().Truncate(time.Second)
	ask := tenants.RaiseRequest{
		ID: "lreq_1", Org: "acme", User: "alice", Key: "k1", Limit: "daily", Subject: "user", Only: "alice",
		Amount: int64(10 * dollar), Until: now.Add(time.Hour), Reason: "demo", Created: now, State: tenants.RaisePending,
	}
	e, err := tenants.RaiseEntry("limit_request.create", nil, &ask)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = store.RequestRaise(t.Context(), ask, e); err != nil {
		t.Fatal(err)
	}
	const path = "/limit_requests/lreq_1/approve"
	end := in(30 * time.Minute)
	approved := `{"status":"approved","approved_amount":"$5.00","approved_until":"` + end + `","decision_reason":"half"}`
	d.expect(200, "POST", path, `{"amount":"$5","until":"`+end+`","reason":"half"}`, approved)
	before := d.changes()
	d.expect(200, "POST", path, `{"amount":"$5","until":"`+end+`","reason":"again"}`, approved)
	d.expect(200, "POST", path, `{}`, approved) // without another amount
	for _, other := range []string{
		`{"amount":"$6"}`, `{"amount":"$10"}`, `{"amount":"$5","until":"` + in(40*time.Minute) + `"}`, `{"until":"` + in(20*time.Minute) + `"}`,
	} {
		d.refused(409, "limit_request_decided", "", "POST", path, other)
	}
	d.refused(409, "limit_request_decided", "", "POST", "/limit_requests/lreq_1/deny", `{"reason":"no"}`)
	if after := d.changes(); after != before {
		t.Errorf("%d changes are recorded after the first approval", after-before)
	}
	d.has("alice", d.limit("/orgs/acme/limits?user=alice", "daily"), `{"amount":15e9,"base_amount":1e10}`)
}
