package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestPackageStarts: in the package as built for a release, the units start a program that
// exists at that path, runs, and prints its version and commit. Building takes minutes, so this
// is a long test.
func TestPackageStarts(t *testing.T) {
	if os.Getenv("LLMGUARD_SOAK") == "" {
		t.Skip("builds a package: `make soak PKG=./test/deploy`")
	}
	if runtime.GOOS != "linux" {
		t.Skip("packages are for Linux")
	}
	unpack, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	const version = "0.9.8"
	dir, root := t.TempDir(), t.TempDir()
	run(t, "go", "-C", "../test", "run", "./pack", "-version", version, "-out", dir)
	debs, err := filepath.Glob(dir + "/*.deb")
	if err != nil || len(debs) != 1 {
		t.Fatalf("got the packages %v, %v", debs, err)
	}
	if fields := run(t, unpack, "-f", debs[0], "Package", "Version", "Recommends"); !strings.Contains(fields, "Package: llmguard\n") ||
		!strings.Contains(fields, "Version: "+version+"\n") || !strings.Contains(fields, "redis-server") {
		t.Errorf("got the fields %s", fields)
	}
	run(t, unpack, "-x", debs[0], root)
	units, err := filepath.Glob(root + "/lib/systemd/system/*.service")
	if err != nil || len(units) != 2 {
		t.Errorf("got the units %v, %v; want both", units, err)
	}
	for _, unit := range units {
		for _, m := range regexp.MustCompile(`(?m)^ExecStart(?:Pre)?=(\S+)`).FindAllStringSubmatch(read(t, unit), -1) {
			said := run(t, inside(t, root, m[1]), "--version")
			if !regexp.MustCompile(`^llmguard ` + regexp.QuoteMeta(version) + `, commit [0-9a-f]{40}\b`).MatchString(said) {
				t.Errorf("%s starts %s, which says %q; want version %s with its commit", filepath.Base(unit), m[1], said, version)
			}
		}
	}
	for _, name := range []string{"usr/share/man/man1/llmguard.1", "usr/share/bash-completion/completions/llmguard", "etc/llmguard"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

// inside returns the path, in an unpacked package, of a program that a unit starts.
func inside(t *testing.T, root, program string) string {
	t.Helper()
	dirs := searched
	if filepath.IsAbs(program) {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		path := filepath.Join(root, dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 == 0o111 {
			return path
		}
	}
	t.Fatalf("the package has no program %s that systemd finds", program)
	return ""
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := redistest.Command(t, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
