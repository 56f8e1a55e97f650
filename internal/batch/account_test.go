package batch

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/providers"
)

// TestResultsNameNoAccount checks that what a provider writes about our account into its
// result files does not appear in ours.
func TestResultsNameNoAccount(t *testing.T) {
	const key = "sk-0123456789-of-ours"
	base := &url.URL{Scheme: "https", Host: "gateway.invalid", Path: "/v1"}
	p := &providers.Provider{ID: "openai", BaseURL: base, APIKey: key}
	if _, err := providers.NewSet([]*providers.Provider{p}); err != nil {
		t.Fatal(err)
	}
	api, _ := p.Batches()
	rc := &receiving{t: &turn{b: &Batch{}}, redact: api.Redactor()}
	for _, line := range []string{
		`{"custom_id":"a","response":{"status_code":401,"request_id":"` + key + `","body":{"error":{"message":"no ` + key + ` at gateway.invalid"}}}}`,
		`{"custom_id":"a","response":{"status_code":200,"request_id":"r","body":{"error":{"message":"no ` + key + ` at gateway.invalid"}}}}`,
		`{"custom_id":"a","response":null,"error":{"code":"` + key + `","message":"no ` + key + ` at gateway.invalid"}}`,
	} {
		r, end := rc.result(&heldLine{Batched: guard.Batched{}}, parseUpstream([]byte(line)))
		text, err := json.Marshal(r.Response)
		if err != nil {
			t.Fatal(err)
		}
		all := fmt.Sprint(string(text), r.Error, end.RequestID)
		if strings.Contains(all, key) || strings.Contains(all, base.Host) {
			t.Errorf("%s became %s", line, all)
		}
	}
	r, _ := rc.result(&heldLine{}, parseUpstream([]byte(`{"custom_id":"a","response":{"status_code":200,"body":{"data":["gateway.invalid"]}}}`)))
	if string(r.Response.Body) != `{"data":["gateway.invalid"]}` {
		t.Errorf("an answer became %s", r.Response.Body)
	}
}
