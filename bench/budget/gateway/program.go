package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Find returns the program of a gateway: the given one, or the one that the manifest builds, installs or
// names. Files that it makes are in dir.
func (m *Manifest) Find(ctx context.Context, given, dir string) (string, error) {
	p := m.Program
	switch {
	case given != "":
		return given, nil
	case p.Self:
		return os.Executable()
	case p.Path != "":
		return exec.LookPath(p.Path)
	case p.NPM != "":
		return m.install(ctx)
	case len(p.Build) > 0:
		return m.build(ctx, dir)
	}
	return "", nil // a container or a service that runs
}

func (m *Manifest) build(ctx context.Context, dir string) (string, error) {
	bin, err := filepath.Abs(filepath.Join(dir, "bin-"+m.Name))
	if err != nil {
		return "", err
	}
	args, err := renderAll(m.Program.Build, Scope{Bin: bin})
	if err != nil {
		return "", err
	}
	root, err := root()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", m.Name, err, out)
	}
	return bin, nil
}

// root is the root of the repository, found from the working directory.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "bench", "budget", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the repository was not found: run this in it, or name the program with -bin")
}

// install installs a package of npm in the user's cache, without running its scripts.
func (m *Manifest) install(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "budgetbench", m.Name)
	bin := filepath.Join(dir, "node_modules", m.Program.Main)
	command := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts",
		"--loglevel=error", m.Program.NPM)
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install %s: %w\n%s", m.Program.NPM, err, out)
	}
	_, err = os.Stat(bin)
	return bin, err
}

// FindVersion returns the version of the program.
func (m *Manifest) FindVersion(ctx context.Context, bin string) (string, error) {
	if len(m.Version.Command) == 0 {
		return m.Version.Text, nil
	}
	args, err := renderAll(m.Version.Command, Scope{Bin: bin})
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w\n%s", m.Name, err, out)
	}
	return match(string(out), m.Version.Match)
}
