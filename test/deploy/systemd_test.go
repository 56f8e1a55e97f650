package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestUnits: systemd itself reads the units, where it is installed; and they
// leave the processes time to end.
func TestUnits(t *testing.T) {
	cfg := composeConfig(t) // its times are the defaults
	need := max(cfg.Timeouts.Drain+cfg.Timeouts.Shutdown, cfg.Queue.Shutdown) + 13*time.Second
	for _, name := range []string{"llmguard-serve.service", "llmguard-worker@.service"} {
		unit := read(t, "systemd/"+name)
		stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(unit)
		if stop == nil {
			t.Fatalf("%s: no TimeoutStopSec", name)
		}
		if d, err := time.ParseDuration(stop[1] + "s"); err != nil || d < need {
			t.Errorf("%s is killed after %s, but may take %s", name, d, need)
		}
		for _, want := range []string{"Restart=always", "DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "StateDirectory="} {
			if !strings.Contains(unit, "\n"+want) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
		verify(t, name, unit)
	}
}

// verify lets systemd-analyze look at a unit, with a program that exists here.
func verify(t *testing.T, name, unit string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("%s: systemd-analyze is not installed, so systemd's own check is left out", name)
		return
	}
	path := filepath.Join(t.TempDir(), strings.Replace(name, "@", "@1", 1))
	unit = strings.ReplaceAll(unit, "/usr/local/bin/llmguard", "/bin/true")
	if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), filepath.Base(path)) {
		t.Errorf("%s: %v: %s", name, err, out)
	}
}
