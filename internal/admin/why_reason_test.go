package admin

import (
	"strings"
	"testing"
)

// TestWhyReasonAgreesWithLimits: a job whose limits have no capacity is not reported as waiting
// only for quota.
func TestWhyReasonAgreesWithLimits(t *testing.T) {
	before := 23
	w := &Why{
		Kind: "job", WaitsFor: "quota", Reason: "Its limits have capacity.", Job: &JobLine{Pool: "openai", Ahead: &before},
		Limits: []WhyLimit{{Name: "user-hour", Subject: "user", Refuses: true}},
	}
	w.conclude()
	if w.WaitsFor != "limit" || strings.Contains(w.Reason, "have capacity") || !strings.Contains(w.Reason, "user-hour") {
		t.Errorf("waits for %s: %s", w.WaitsFor, w.Reason)
	}
}
