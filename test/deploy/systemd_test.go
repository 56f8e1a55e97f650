package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestUnits: systemd itself accepts the units, where it is installed, and they leave the
// processes enough time to shut down.
func TestUnits(t *testing.T) {
	cfg := composeConfig(t) // has the default times
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

// searched is where systemd looks for a program without a path.
var searched = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"}

// TestUnitsStartWhatPackagesInstall: a package's units run the program where the package
// installs it.
func TestUnitsStartWhatPackagesInstall(t *testing.T) {
	var release struct {
		Builds []struct{ ID, Binary string }
		NFPMs  []struct {
			IDs      []string
			Bindir   string
			Contents []struct{ Src, Dst, Type string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &release); err != nil {
		t.Fatal(err)
	}
	for _, p := range release.NFPMs {
		installed := map[string]bool{}
		for _, b := range release.Builds {
			if slices.Contains(p.IDs, b.ID) {
				installed[filepath.Join(p.Bindir, b.Binary)] = true
			}
		}
		units := 0
		for _, c := range p.Contents {
			if !strings.HasSuffix(c.Src, ".service") {
				continue
			}
			units++
			if !strings.HasPrefix(c.Dst, "/lib/systemd/system/") {
				t.Errorf("systemd does not read %s", c.Dst)
			}
			started := regexp.MustCompile(`(?m)^ExecStart(?:Pre)?=(\S+)`).FindAllStringSubmatch(read(t, "../"+c.Src), -1)
			for _, m := range started {
				runs := installed[m[1]]
				for _, dir := range searched {
					runs = runs || !filepath.IsAbs(m[1]) && installed[filepath.Join(dir, m[1])]
				}
				if !runs {
					t.Errorf("%s starts %s, and the package installs %v", c.Src, m[1], installed)
				}
			}
			if len(started) != 2 {
				t.Errorf("%s starts %d programs", c.Src, len(started))
			}
		}
		if units != 2 {
			t.Errorf("%d units in a package", units)
		}
	}
}

// verify runs systemd-analyze on a unit, with a program that exists here.
func verify(t *testing.T, name, unit string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("%s: systemd-analyze is not installed, so systemd's own check is left out", name)
		return
	}
	path := filepath.Join(t.TempDir(), strings.Replace(name, "@", "@1", 1))
	unit = strings.ReplaceAll(unit, "=llmguard ", "=/bin/true ")
	if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := redistest.Command(t, analyze, "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), filepath.Base(path)) {
		t.Errorf("%s: %v: %s", name, err, out)
	}
}
