package orgdata_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// TestExportHidesSharedCaps: an org's export names neither a spend cap that orgs share nor what was left of it.
func TestExportHidesSharedCaps(t *testing.T) {
	h := newFixture(t)
	for _, cause := range []budget.Cause{"limit:day", "cap:everybody"} {
		who := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "alice", Key: "k1"}
		h.books.Refusals.Add(budget.RefusedCall{Call: who, Cause: cause, Metric: budget.Cost, Needed: 5, Left: 777})
	}
	h.must(h.books.Refusals.Write(t.Context()))
	x := &orgdata.Export{
		Org: "acme", Budget: h.books, Tenants: h.ids, Files: h.files,
		Queue:      func() (*queue.Queue, error) { return h.queue, nil },
		Identities: func(func(string, any) error) error { return nil },
		Job:        func(j *queue.Job) any { return j.ID },
		Names: func(ctx context.Context, org, prefix string) ([]string, error) {
			return orgdata.NamesOf(ctx, redistest.DB(h.rdb), org, prefix)
		},
	}
	lines := map[string]int{} // by type and cause
	h.must(x.Write(t.Context(), func(line orgdata.ExportLine) error {
		var data struct{ Cause string }
		h.must(json.Unmarshal(line.Data, &data))
		lines[line.Type+" "+data.Cause]++
		text := string(line.Data)
		if strings.Contains(text, "everybody") || data.Cause == "cap" && strings.Contains(text, "777") {
			t.Errorf("the export has %s", text)
		}
		if data.Cause == "limit:day" && line.Type == "refused_call" && !strings.Contains(text, "777") {
			t.Errorf("without what the org's own limit had left: %s", text)
		}
		return nil
	}))
	for _, want := range []string{"refusal limit:day", "refusal cap", "refused_call limit:day", "refused_call cap"} {
		if lines[want] != 1 {
			t.Errorf("got %v, want one line %s", lines, want)
		}
	}
}
