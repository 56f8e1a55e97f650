package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

// recorded checks the newest audit entries, newest first. Fields that are not given are
// ignored, except actor, time and address.
func (d *deployment) recorded(want ...string) {
	d.t.Helper()
	page := d.expect(200, "GET", fmt.Sprintf("/audit?limit=%d", len(want)), "", "")
	list, _ := page["data"].([]any)
	if len(list) != len(want) {
		d.t.Fatalf("got the entries %v, want %d", list, len(want))
	}
	for i := range want {
		got, _ := list[i].(map[string]any)
		var fields object
		if err := json.Unmarshal([]byte(want[i]), &fields); err != nil {
			d.t.Fatal(err)
		}
		for name, value := range fields {
			if !reflect.DeepEqual(got[name], value) {
				d.t.Errorf("%s: got %v, want %v in %v", name, got[name], value, got)
			}
		}
		if got["ip"] != "192.0.2.1" || got["at"] == nil || got["request_id"] == nil {
			d.t.Errorf("got the entry %v, want a time, an address and a request", got)
		}
	}
}

// TestSignInsAreOnRecord: the audit has who signed in to and out of the console, and whose key
// was refused.
func TestSignInsAreOnRecord(t *testing.T) {
	d := deploy(t)
	d.as(viewerKey).expect(200, "POST", "/session", "", `{"id":"viewer","read_only":true}`)
	d.as(viewerKey).expect(200, "DELETE", "/session", "", `{"id":"viewer"}`)
	d.as(offKey).send("POST", "/session", "")
	d.as(keys.New(keys.Admin)).send("GET", "/orgs", "")
	d.as(callerKey).send("GET", "/orgs", "")
	d.recorded(
		`{"action":"admin.refused","actor":"","after":{"path":"/admin/v1/orgs"}}`,
		`{"action":"admin.refused","actor":"","after":{"path":"/admin/v1/orgs"}}`,
		`{"action":"admin.refused","actor":"","target":"off","after":{"path":"/admin/v1/session"}}`,
		`{"action":"admin.sign_out","actor":"viewer","target":"viewer"}`,
		`{"action":"admin.sign_in","actor":"viewer","target":"viewer"}`,
	)
}

// TestWrongKeysDoNotFloodTheAudit: however many addresses try keys, administrators' changes
// stay in the audit, with the number of unrecorded attempts.
func TestWrongKeysDoNotFloodTheAudit(t *testing.T) {
	d := deploy(t)
	for i := range 300 {
		d.as(callerKey).send("GET", "/orgs", "", func(r *http.Request) { r.RemoteAddr = fmt.Sprintf("10.0.%d.1:80", i) })
	}
	page := d.expect(200, "GET", "/audit?limit=1000", "", "")
	if list, _ := page["data"].([]any); len(list) < 30 || len(list) > 40 {
		t.Errorf("got %d entries, want about 30", len(list))
	}
}

// TestRequestsThatAreRefusedChangeNothing: a request for an unknown job or batch leaves no
// audit entry.
func TestRequestsThatAreRefusedChangeNothing(t *testing.T) {
	d := deploy(t)
	d.refused(404, "job_not_found", "job", "POST", "/orgs/acme/jobs/job_x/cancel", "{}")
	d.refused(404, "job_not_found", "job", "POST", "/jobs/job_x/replay", "{}")
	d.refused(404, "batch_not_found", "batch", "POST", "/orgs/acme/users/alice/batches/x/cancel", "{}")
	d.refused(400, "invalid_value", "cancel_jobs", "PATCH", "/orgs/acme/keys/k1", `{"cancel_jobs":true}`)
	d.expect(200, "GET", "/audit", "", `{"data":[]}`)
}
