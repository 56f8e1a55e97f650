package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// uses matches where a file names what it runs or builds from: an action, a base image or build
// frontend, or the image of a service.
var uses = regexp.MustCompile(`(?m)^(?:\s*(?:- )?(?:uses|image): *|FROM (?:--platform=\S+ )?|# syntax=)(\S+)`)

// pinned matches a reference that ends with a commit or digest.
var pinned = regexp.MustCompile(`@(?:[0-9a-f]{40}|sha256:[0-9a-f]{64})$`)

// ours are the images built from this repository, and the one without files.
var ours = []string{"llmguard", "llmguard:local", "scratch"}

// TestPinnedByDigest: moving a tag cannot change what our builds and deployments run.
func TestPinnedByDigest(t *testing.T) {
	files := []string{"../Dockerfile", "Dockerfile.release", "../docker-compose.yml"}
	more, err := filepath.Glob("../.github/workflows/*")
	if err != nil || len(more) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	files = append(files, more...)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uses.FindAllSubmatch(text, -1) {
			name := string(m[1])
			if slices.Contains(ours, name) {
				continue
			}
			found++
			if !pinned.MatchString(name) {
				t.Errorf("%s: got %s, want it by commit or digest", file, name)
			}
		}
	}
	if found < 20 {
		t.Errorf("got %d names in %v, want all of them", found, files)
	}
}
