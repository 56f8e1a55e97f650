package pricing

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestModelsOfOpenAI: every model that OpenAI's SDK (openai-node 7.55.0) and its guides name for an endpoint
// that is served has a price, or its refusal says why not.
func TestModelsOfOpenAI(t *testing.T) {
	list, err := os.ReadFile("testdata/openai_models.txt")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range strings.Fields(string(list)) {
		_, err := c.Lookup("openai", model, time.Now())
		reason := unpricedReason(model)
		switch {
		case err == nil && reason != "":
			t.Errorf("%s has a price and a reason for none: %s", model, reason)
		case err != nil && (reason == "" || !strings.Contains(err.Error(), reason)):
			t.Errorf("%s has neither a price nor a reason: %v", model, err)
		}
	}
}
