package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimulatePlot(t *testing.T) {
	log, dir := history(t), t.TempDir()
	policy := filepath.Join(dir, "new.yaml")
	text := "redis: {url: \"redis://h\"}\nproviders: [{id: p, base_url: \"http://h/v1\", pools: [{id: p, rpm: 900}]}]\n" +
		"orgs: [{id: acme, limits: [{name: user-10m, subject: user, amount: $1, window: 10m}]}]\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"plot.svg": "<svg", "plot.html": "<!doctype html>"} {
		path := filepath.Join(dir, name)
		out := says(t, "simulate", "--log", log, "--policy", policy, "--plot", path)
		if !strings.Contains(out, "plot: "+path) || !strings.Contains(out, "660 calls") {
			t.Errorf("%s: it says %s", name, out)
		}
		drawn, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(drawn), want) || !strings.Contains(string(drawn), "acme user-10m") {
			t.Errorf("%s is %.300s", name, drawn)
		}
	}
	if out := says(t, "simulate", "--log", log, "--policy", policy, "--plot", "plot.png"); !strings.Contains(out, "expected a file name that ends with .svg or .html") {
		t.Errorf("plot.png: %s", out)
	}
}
