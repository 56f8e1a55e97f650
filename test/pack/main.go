// Command pack builds the Debian package for this machine's architecture like a release: with
// the build and package settings of .goreleaser.yaml and a pinned nfpm. It needs the module
// proxy the first time.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
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
	version := flag.String("version", "0.0.0", "version of the package, without v")
	out := flag.String("out", "dist", "directory for the package")
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
	NFPMs []struct {
		IDs                                                []string
		Bindir, Maintainer, Description, Homepage, License string
		Recommends                                         []string
		Contents                                           []content
	}
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

// pack is a package being built.
type pack struct {
	root, tmp, version string
	release            release
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
	p := &pack{root: root, tmp: tmp, version: version}
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &p.release)
	}
	if err == nil {
		err = p.files()
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return p.command(root, nil, "go", "run", nfpm, "package", "--packager", "deb", "--config", filepath.Join(tmp, "nfpm.yaml"), "--target", out)
}

// files creates the contents of the package, and nfpm's settings.
func (p *pack) files() error {
	n := p.release.NFPMs[0]
	var contents []content
	for _, b := range p.release.Builds {
		if !slices.Contains(n.IDs, b.ID) {
			continue
		}
		args := append([]string{"build"}, b.Flags...)
		flags := strings.ReplaceAll(strings.Join(b.Ldflags, " "), "{{ .Version }}", p.version)
		at := filepath.Join(p.tmp, b.Binary)
		if err := p.command(p.root, b.Env, "go", append(args, "-ldflags", flags, "-o", at, b.Main)...); err != nil {
			return err
		}
		contents = append(contents, content{Src: at, Dst: filepath.Join(n.Bindir, b.Binary), Info: &fileInfo{0o755}})
	}
	if err := p.texts(); err != nil {
		return err
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
	return os.WriteFile(filepath.Join(p.tmp, "nfpm.yaml"), text, 0o600)
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
		text, err := exec.Command(filepath.Join(p.tmp, "llmguard"), "completion", shell).Output()
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
