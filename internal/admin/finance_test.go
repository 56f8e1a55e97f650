package admin_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestFinance: exports and statements have the org's total, whoever may read may fetch them, and
// wrong requests are refused.
func TestFinance(t *testing.T) {
	d := deploy(t, "labels: [{name: project, default: none}]\n")
	d.spent()
	month := time.Now().UTC().Format("2006-01")
	for _, one := range []struct{ path, kind, name, begin string }{
		{
			"focus?by=user,label:project", "text/csv; charset=utf-8", "focus-acme-" + month + ".csv",
			"AvailabilityZone,BilledCost,",
		},
		{"statement?", "text/html; charset=utf-8", "statement-acme-" + month + ".html", "<!doctype html>"},
		{"statement?format=csv", "text/csv; charset=utf-8", "statement-acme-" + month + ".csv", "org,month,status,"},
	} {
		w := d.as(viewerKey).send("GET", "/orgs/acme/"+one.path+"&month="+month, "")
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") != one.kind || !strings.HasPrefix(w.Body.String(), one.begin) ||
			h.Get("Content-Disposition") != `attachment; filename="`+one.name+`"` || h.Get("Llmguard-Provisional") != "true" {
			t.Errorf("%s: got %d %v %.80q, want %s as %s", one.path, w.Code, h, w.Body, one.kind, one.name)
		}
		// Yesterday, which may be in the month, is a copy of the sums without entries.
		if total := h.Get("Llmguard-Total-Usd"); total != "8.000000001" && total != "16.000000002" {
			t.Errorf("%s: got the total %s, want that of one day or two", one.path, total)
		}
		if w := d.as("").send("GET", "/orgs/acme/"+one.path, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("%s without a key: got %d, want 401", one.path, w.Code)
		}
	}
	d.refused(404, "org_not_found", "org", "GET", "/orgs/none/focus", "")
	d.refused(404, "org_not_found", "org", "GET", "/orgs/none/statement", "")
	d.refused(400, "invalid_value", "month", "GET", "/orgs/acme/focus?month=November", "")
	d.refused(400, "invalid_value", "month", "GET", "/orgs/acme/statement?month=2999-01", "")
	d.refused(400, "invalid_value", "by", "GET", "/orgs/acme/focus?by=users", "")
	d.refused(400, "invalid_value", "by", "GET", "/orgs/acme/focus?by=label:projekt", "")
	d.refused(400, "invalid_value", "format", "GET", "/orgs/acme/focus?format=xml", "")
	d.refused(400, "invalid_value", "format", "GET", "/orgs/acme/statement?format=pdf", "")
	w := d.send("GET", "/orgs/acme/focus?format=parquet", "")
	if w.Code != 400 || !strings.Contains(w.Body.String(), "parquet was removed in 0.2.0; use csv") {
		t.Errorf("Parquet: got %d %s, want what to use instead", w.Code, w.Body)
	}
}

// TestFocusNames: providers of the configuration have the names of their companies.
func TestFocusNames(t *testing.T) {
	d := deploy(t)
	d.spent()
	w := d.send("GET", "/orgs/acme/focus?billing_account=acc-7&month="+time.Now().UTC().Format("2006-01"), "")
	lines, err := csv.NewReader(w.Body).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("got %d lines, %v", len(lines), err)
	}
	for i, name := range lines[0] {
		want := map[string]string{"BillingAccountId": "acc-7", "SubAccountId": "acme", "SubAccountName": "Acme"}[name]
		if want != "" && lines[1][i] != want {
			t.Errorf("got %s %q, want %q", name, lines[1][i], want)
		}
	}
}
