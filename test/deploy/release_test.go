package deploy_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// releaseVersion is the version of the release that is built here.
const releaseVersion = "0.9.8"

// TestRelease builds what a release has for this machine and runs the program in each of its forms.
func TestRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("packages and images are for Linux")
	}
	dir := t.TempDir()
	run(t, "go", "-C", "../test", "run", "./pack", "-version", releaseVersion, "-out", dir)
	for name, try := range map[string]func(*testing.T, string){
		"archive": triesArchive, "package": triesPackage, "installer": triesInstaller, "image": triesImage,
	} {
		t.Run(name, func(t *testing.T) { try(t, dir) })
	}
}

// starts expects that llmguard prints the release's version, and its commit if this is a clone of the repository.
func starts(t *testing.T, name string, args ...string) {
	t.Helper()
	commit := `[0-9a-f]{40}`
	if info, err := os.Stat("../.git"); err != nil || !info.IsDir() {
		commit = "unknown"
	}
	want := regexp.MustCompile("^llmguard " + regexp.QuoteMeta(releaseVersion) + ", commit " + commit + `\b`)
	if said := run(t, name, append(args, "--version")...); !want.MatchString(said) {
		t.Errorf("%s says %q; want %s", name, said, want)
	}
}

// expect expects files in a directory.
func expect(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// the returns the only file of a directory that a pattern matches.
func the(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("got the files %v, %v; want one %s", found, err, pattern)
	}
	return found[0]
}

// needs skips a test without a program.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(program + " is not installed")
	}
	return path
}

func triesArchive(t *testing.T, dir string) {
	root := t.TempDir()
	run(t, "tar", "-xzf", the(t, dir, "*.tar.gz"), "-C", root)
	starts(t, filepath.Join(root, "llmguard"))
	run(t, filepath.Join(root, "worker"), "-h")
	expect(t, root, "README.md", "LICENSE", "docs/README.md", "man/man1/llmguard.1", "completion/llmguard.bash",
		"grafana/alerts.yaml", "deploy/systemd/llmguard-serve.service")
}

// triesPackage: the units start a program that the package has at that path.
func triesPackage(t *testing.T, dir string) {
	unpack := needs(t, "dpkg-deb")
	deb, root := the(t, dir, "*.deb"), t.TempDir()
	if fields := run(t, unpack, "-f", deb, "Package", "Version", "Recommends"); !strings.Contains(fields, "Package: llmguard\n") ||
		!strings.Contains(fields, "Version: "+releaseVersion+"\n") || !strings.Contains(fields, "redis-server") {
		t.Errorf("got the fields %s", fields)
	}
	run(t, unpack, "-x", deb, root)
	units, err := filepath.Glob(root + "/lib/systemd/system/*.service")
	if err != nil || len(units) != 2 {
		t.Errorf("got the units %v, %v; want both", units, err)
	}
	for _, unit := range units {
		for _, m := range regexp.MustCompile(`(?m)^ExecStart(?:Pre)?=(\S+)`).FindAllStringSubmatch(read(t, unit), -1) {
			starts(t, inside(t, root, m[1]))
		}
	}
	expect(t, root, "usr/share/man/man1/llmguard.1", "usr/share/bash-completion/completions/llmguard", "etc/llmguard")
}

// triesInstaller runs the installer against a server with the release's files.
func triesInstaller(t *testing.T, dir string) {
	needs(t, "curl")
	files := http.FileServer(http.Dir(dir))
	mux := http.NewServeMux()
	mux.Handle("/latest/download/", http.StripPrefix("/latest/download/", files))
	mux.Handle("/download/v"+releaseVersion+"/", http.StripPrefix("/download/v"+releaseVersion+"/", files))
	mux.HandleFunc("/download/v0.9.7/", func(w http.ResponseWriter, r *http.Request) { // checksums of other bytes
		if filepath.Base(r.URL.Path) == "checksums.txt" {
			_, _ = w.Write([]byte(strings.Repeat("0", 64) + "  " + filepath.Base(the(t, dir, "*.tar.gz")) + "\n"))
			return
		}
		http.ServeFile(w, r, the(t, dir, "*.tar.gz"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, test := range []struct{ version, wrong string }{
		{"", ""},
		{releaseVersion, ""},
		{"0.9.7", "SHA-256"},
		{"0.1.0", "could not be downloaded"},
	} {
		bin := filepath.Join(t.TempDir(), "new", "bin")
		install := redistest.Command(t, "sh", "install.sh")
		install.Env = append(os.Environ(), "LLMGUARD_RELEASES="+server.URL, "LLMGUARD_VERSION="+test.version, "LLMGUARD_BIN="+bin)
		out, err := install.CombinedOutput()
		program := filepath.Join(bin, "llmguard")
		if test.wrong == "" {
			if err != nil || !strings.Contains(string(out), "try it: "+program+" dev") {
				t.Errorf("version %q: %v\n%s", test.version, err, out)
			}
			starts(t, program)
			continue
		}
		if _, missing := os.Stat(program); err == nil || missing == nil || !strings.Contains(string(out), test.wrong) {
			t.Errorf("version %q: got %v and %q, want nothing installed and %q", test.version, err, out, test.wrong)
		}
	}
}

// triesImage builds the release's image, which needs no daemon, and runs its program as the user and with the files that
// the image has.
func triesImage(t *testing.T, dir string) {
	buildah := needs(t, "buildah")
	if os.Getuid() != 0 {
		t.Skip("running the program inside the image needs root")
	}
	store := t.TempDir()
	build := func(args ...string) string {
		args = append([]string{"--storage-driver=vfs", "--root=" + store + "/all", "--runroot=" + store + "/run"}, args...)
		return strings.TrimSpace(lastLine(run(t, buildah, args...)))
	}
	build("build", "--isolation=chroot", "--platform=linux/"+runtime.GOARCH, "-f", "Dockerfile.release", "-t", "llmguard", dir)
	container := build("from", "llmguard")
	root := build("mount", container)
	t.Cleanup(func() { build("rm", container) })
	inside := []string{"--userspec=65532:65532", root}
	starts(t, "chroot", append(inside, "/llmguard")...)
	run(t, "chroot", append(inside, "/worker", "-h")...)
	// The image has no certificates of public authorities beside those in the program.
	if modules := run(t, "go", "version", "-m", root+"/llmguard"); !strings.Contains(modules, "golang.org/x/crypto/x509roots/fallback") {
		t.Error("the program has no certificates")
	}
	for _, name := range []string{composeConfig(t).Files.Store, "/var/lib/llmguard", "/tmp"} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 65532 {
			t.Errorf("%s is not of the image's user: %v", name, err)
		}
	}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
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
