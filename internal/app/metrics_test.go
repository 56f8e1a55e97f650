package app

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestBuildInfo checks that every process reports its build.
func TestBuildInfo(t *testing.T) {
	reg := prometheus.NewRegistry()
	registerBuild(reg)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "llmguard_build_info" {
		t.Fatalf("%v: %v", err, families)
	}
	labels := map[string]bool{}
	for _, l := range families[0].GetMetric()[0].GetLabel() {
		labels[l.GetName()] = true
	}
	if !labels["version"] || !labels["commit"] || !labels["go"] || families[0].GetMetric()[0].GetGauge().GetValue() != 1 {
		t.Errorf("got %v", families[0])
	}
}
