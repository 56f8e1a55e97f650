// Command pack builds what a release has for this machine: the archive, the Debian package, their
// checksums, and the binaries where the image's Dockerfile looks for them. It reads the settings in
// .goreleaser.yaml and runs a pinned nfpm. It needs the module proxy the first time.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// nfpm is the program and its version: the last one without modules for formats that we do not
// build.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"

func main() {
	version := flag.String("version", "0.0.0", "version of the release, without v")
	out := flag.String("out", "dist", "directory for the files")
	flag.Parse()
	if err := run(*version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// release holds the fields of .goreleaser.yaml that are used.
type release struct {
	Builds []struct {
		ID, Main, Binary    string
		Env, Flags, Ldflags []string
	}
	Archives []struct{ Files []archived }
	NFPMs    []struct {
		IDs                                                []string
		Bindir, Maintainer, Description, Homepage, License string
		Recommends                                         []string
		Contents                                           []content
	}
}

// archived names files of an archive: a pattern, or a pattern and the directory that they get there.
type archived struct{ Src, Dst string }

// UnmarshalYAML also reads a bare pattern.
func (a *archived) UnmarshalYAML(text []byte) error {
	type plain archived
	if err := yaml.Unmarshal(text, &a.Src); err == nil {
		return nil
	}
	return yaml.Unmarshal(text, (*plain)(a))
}

type content struct {
	Src  string    `yaml:"src,omitempty"`
	Dst  string    `yaml:"dst"`
	Type string    `yaml:"type,omitempty"`
	Info *fileInfo `yaml:"file_info,omitempty"`
}

type fileInfo struct {
	Mode int `yaml:"mode"`
}

// pack is a release being built.
type pack struct {
	root, tmp, out, version string
	release                 release
}

func run(version, out string) error {
	root, err := filepath.Abs("..") // of the repository; this runs in the module test
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "llmguard-pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if !strings.Contains(version, ".") { // a commit without a tag
		version = "0.0.0+" + version
	}
	p := &pack{root: root, tmp: tmp, out: out, version: version}
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &p.release)
	}
	if err != nil {
		return err
	}
	for _, step := range []func() error{p.build, p.texts, p.archive, p.deb, p.checksums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// binaries is the directory in which the image's Dockerfile looks for the binaries.
func (p *pack) binaries() string { return filepath.Join(p.out, "linux", runtime.GOARCH) }

func (p *pack) build() error {
	for _, b := range p.release.Builds {
		args := append([]string{"build"}, b.Flags...)
		flags := strings.ReplaceAll(strings.Join(b.Ldflags, " "), "{{ .Version }}", p.version)
		at := filepath.Join(p.binaries(), b.Binary)
		if err := p.command(p.root, b.Env, "go", append(args, "-ldflags", flags, "-o", at, b.Main)...); err != nil {
			return err
		}
	}
	return nil
}

// archive writes the archive as goreleaser names it.
func (p *pack) archive() error {
	name := fmt.Sprintf("llmguard_%s_%s_%s.tar.gz", p.version, runtime.GOOS, runtime.GOARCH)
	file, err := os.Create(filepath.Join(p.out, name))
	if err != nil {
		return err
	}
	defer file.Close()
	zipped := gzip.NewWriter(file)
	out := tar.NewWriter(zipped)
	for _, b := range p.release.Builds {
		if err := add(out, filepath.Join(p.binaries(), b.Binary), b.Binary); err != nil {
			return err
		}
	}
	for _, a := range p.release.Archives[0].Files {
		if err := p.addAll(out, a); err != nil {
			return err
		}
	}
	for _, closed := range []io.Closer{out, zipped, file} {
		if err := closed.Close(); err != nil {
			return err
		}
	}
	return nil
}

// addAll adds the files that a pattern matches.
func (p *pack) addAll(out *tar.Writer, a archived) error {
	from := p.root
	if strings.HasPrefix(a.Src, "dist-") { // made by texts
		from = p.tmp
	}
	found, err := filepath.Glob(filepath.Join(from, a.Src))
	if below, base, all := strings.Cut(a.Src, "**/"); all && err == nil {
		found, err = findAll(filepath.Join(from, below), base)
	}
	if err != nil {
		return err
	}
	for _, file := range found {
		name, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		if a.Dst != "" {
			name = path.Join(a.Dst, filepath.Base(file))
		}
		if err := add(out, file, name); err != nil {
			return err
		}
	}
	return nil
}

// findAll returns the files below a directory with a name that matches.
func findAll(dir, pattern string) (found []string, err error) {
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if ok, _ := path.Match(pattern, d.Name()); ok && !d.IsDir() {
			found = append(found, file)
		}
		return err
	})
	return found, err
}

// add copies a file into an archive.
func add(out *tar.Writer, from, name string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, 0, 0, "root", "root"
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(out, file)
	return err
}

// deb builds the Debian package.
func (p *pack) deb() error {
	n := p.release.NFPMs[0]
	var contents []content
	for _, b := range p.release.Builds {
		if slices.Contains(n.IDs, b.ID) {
			at := filepath.Join(p.binaries(), b.Binary)
			contents = append(contents, content{Src: at, Dst: filepath.Join(n.Bindir, b.Binary), Info: &fileInfo{0o755}})
		}
	}
	for _, c := range n.Contents {
		switch {
		case strings.HasPrefix(c.Src, "dist-"):
			c.Src = filepath.Join(p.tmp, c.Src)
		case c.Src != "":
			c.Src = filepath.Join(p.root, c.Src)
		}
		contents = append(contents, c)
	}
	text, err := yaml.Marshal(map[string]any{
		"name": "llmguard", "arch": runtime.GOARCH, "platform": "linux", "version": p.version, "maintainer": n.Maintainer,
		"description": n.Description, "homepage": n.Homepage, "license": n.License, "recommends": n.Recommends, "contents": contents,
	})
	if err != nil {
		return err
	}
	settings := filepath.Join(p.tmp, "nfpm.yaml")
	if err := os.WriteFile(settings, text, 0o600); err != nil {
		return err
	}
	return p.command(p.root, nil, "go", "run", nfpm, "package", "--packager", "deb", "--config", settings, "--target", p.out)
}

// checksums writes the SHA-256 of each file, in the form of sha256sum.
func (p *pack) checksums() error {
	var text strings.Builder
	for _, pattern := range []string{"*.tar.gz", "*.deb"} {
		found, err := filepath.Glob(filepath.Join(p.out, pattern))
		if err != nil {
			return err
		}
		for _, name := range found {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), filepath.Base(name))
		}
	}
	return os.WriteFile(filepath.Join(p.out, "checksums.txt"), []byte(text.String()), 0o644) //nolint:gosec // for everybody
}

// texts creates the manual pages and the completions, like the release's hooks.
func (p *pack) texts() error {
	if err := p.command(filepath.Join(p.root, "test"), nil, "go", "run", "./man", p.version, filepath.Join(p.tmp, "dist-man")); err != nil {
		return err
	}
	dir := filepath.Join(p.tmp, "dist-completion")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := exec.Command(filepath.Join(p.binaries(), "llmguard"), "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("completion of %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "llmguard."+shell), text, 0o644); err != nil { //nolint:gosec // for everybody
			return err
		}
	}
	return nil
}

func (p *pack) command(dir string, env []string, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(os.Environ(), env...), os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return nil
}
