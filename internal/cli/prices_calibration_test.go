package cli

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestPricesCalibration(t *testing.T) {
	srv := redistest.Start(t)
	path := write(t, "llmguard.yaml", house+"redis: {addresses: [\""+srv.Addr+"\"]}\n")
	out, errOut, err := prices(t, "calibration", "-c", path)
	if err != nil || out != "" || errOut != "no calibration data yet\n" {
		t.Errorf("of nothing: %q, %q, %v", out, errOut, err)
	}
	c := calibration.New(srv.DB(), calibration.Options{})
	for range 20 {
		c.ObserveInput(calibration.Sample{Org: "acme", Model: "claude-opus-4-8", Version: "claude-opus-4-8-20261001", Estimated: 1000, Actual: 1200})
		c.ObserveInput(calibration.Sample{Org: "acme", Model: "gpt-4o", Class: calibration.Code, Estimated: 1000, Actual: 1000})
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`\d{4}-\d\d-\d\d\n`).ReplaceAllString(mustPrices(t, "calibration", "-c", path), "DAY\n")
	same(t, got, `
model            answers as                class  org    n   mean   hold   seen  base  prior        since
claude-opus-4-8  claude-opus-4-8-20261001  prose  acme  20  1.375  1.551  1.200     0  1.550 1.900  DAY
gpt-4o           gpt-4o                    code   acme  20  1.000  1.000  1.000     0  1.000 1.000  DAY
`)
	var rows []calibration.Row
	if err := json.Unmarshal([]byte(mustPrices(t, "calibration", "-c", path, "-o", "json", "--model", "claude-*")), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 || rows[0].Mean != 1375 || rows[0].N != 20 {
		t.Errorf("%+v", rows)
	}
	if _, errOut, err := prices(t, "calibration", "-c", path, "--model", "nova-*"); err != nil || errOut != "no calibration data yet for models that match nova-*\n" {
		t.Errorf("of no model: %q, %v", errOut, err)
	}
	srv.Kill()
	if _, _, err := prices(t, "calibration", "-c", path); err == nil {
		t.Error("no error without Redis")
	}
}
