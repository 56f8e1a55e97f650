package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// run runs llmguard with the stack's configuration and returns its output.
func (s *stack) run(args ...string) string { s.t.Helper(); return s.runBinary(binary, args...) }

func (s *stack) runBinary(binary string, args ...string) string {
	s.t.Helper()
	cmd := redistest.Command(s.t, binary, append(args, "-c", s.path)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("llmguard %v: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

// backup copies the stack's Redis and files while everything runs, as docs/backup.md describes.
func (s *stack) backup(files string) (rdb, copied string) {
	s.t.Helper()
	c := s.redis.Client()
	before := c.LastSave(s.t.Context()).Val()
	// LASTSAVE has a resolution of one second.
	until(s.t, "a new second", func() bool { return time.Now().Unix() > before })
	if err := c.BgSave(s.t.Context()).Err(); err != nil {
		s.t.Fatal(err)
	}
	for range 1200 {
		if now, err := c.LastSave(s.t.Context()).Result(); err == nil && now != before {
			dir := c.ConfigGet(s.t.Context(), "dir").Val()["dir"]
			copied = s.t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(files)); err != nil {
				s.t.Fatal(err)
			}
			return filepath.Join(dir, "dump.rdb"), copied
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatal("redis never saved")
	return "", ""
}

// restore starts another Redis from a snapshot. Processes started from now on use it and the
// copied files.
func (s *stack) restore(rdb, old, files string) {
	s.t.Helper()
	text, err := os.ReadFile(rdb)
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dump.rdb"), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	before := s.redis.Addr
	s.redis = redistest.Start(s.t, redistest.WithArgs("--dir", dir, "--appendonly", "no"))
	if err := s.redis.Client().ConfigSet(s.t.Context(), "appendonly", "yes").Err(); err != nil {
		s.t.Fatal(err)
	}
	s.replace(before, s.redis.Addr)
	s.replace(old, files)
}

// standing returns the limits and usage reported to a key's owner, without values that change
// on their own.
func standing(t *testing.T, p *process, key string) string {
	t.Helper()
	var limits struct {
		Data []struct {
			Limit                   string
			Used, Remaining, Amount json.Number
		}
	}
	a := fetch(p.URL+"/limits", key)
	if err := json.Unmarshal([]byte(a.body), &limits); err != nil || a.status != http.StatusOK || len(limits.Data) == 0 {
		t.Fatalf("limits: %d %s", a.status, a.body)
	}
	text, _ := json.Marshal(limits.Data)
	return string(text)
}

// TestBackupAndRestore: a copy taken from a running system restores budgets, keys, waiting
// jobs, files and the ledger elsewhere, and every job in it ends once.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	s := newStack(t, fakeprovider.Options{}, "files: {store: "+files+"}\n"+simple(`[{name: month, calendar: month, amount: "$5"}]`))
	p := s.proxy()
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(s.run("keys", "create", "--org", "acme", "--user", "alice", "-o", "json")), &made); err != nil || made.Secret == "" {
		t.Fatalf("no key was made: %v", err)
	}
	body := chat("gpt-4o-mini", "hi", `"max_tokens":5`)
	call := func(p *process, key string, want int, header ...string) answer {
		t.Helper()
		var a answer
		for range 600 { // a new key takes effect within seconds
			if a = post(p.URL+"/chat/completions", key, body, header...); a.err == nil && a.status != http.StatusUnauthorized && a.status != http.StatusServiceUnavailable {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if a.status != want {
			t.Fatalf("call: %d %s %v", a.status, a.body, a.err)
		}
		return a
	}
	const live, waiting = 3, 4
	for range live {
		call(p, made.Secret, http.StatusOK)
	}
	var jobs []string
	for range waiting { // no worker is running
		var j job
		if err := json.Unmarshal([]byte(call(p, made.Secret, http.StatusAccepted, "Prefer", "respond-async").body), &j); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j.ID)
	}
	file, err := goClient(p, made.Secret).CreateFileBytes(t.Context(), openai.FileBytesRequest{Name: "in.jsonl", Bytes: []byte("{}\n"), Purpose: openai.PurposeBatch})
	if err != nil {
		t.Fatal(err)
	}
	awaitEntries(t, s, live)

	rdb, copied := s.backup(files)
	before := standing(t, p, made.Secret)
	call(p, made.Secret, http.StatusOK) // after the backup, so it will be lost
	p.terminate()
	s.redis.Kill()

	s.restore(rdb, files, copied)
	p = s.proxy()
	if got := standing(t, p, made.Secret); got != before {
		t.Errorf("limits stand at %s, and before at %s", got, before)
	}
	if a := fetch(p.URL+"/files/"+file.ID+"/content", made.Secret); a.status != http.StatusOK || a.body != "{}\n" {
		t.Errorf("the file has become %d %q", a.status, a.body)
	}
	sent := len(s.fake.Log())
	s.worker()
	s.worker()
	for _, id := range jobs {
		for range 3000 {
			var j job
			if a := fetch(p.URL+"/jobs/"+id, made.Secret); json.Unmarshal([]byte(a.body), &j) != nil {
				t.Fatalf("job %s: %d %s", id, a.status, a.body)
			}
			if j.Status == "succeeded" {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	awaitEntries(t, s, live+waiting)
	if got := len(s.fake.Log()) - sent; got != waiting {
		t.Errorf("the provider was sent %d calls for %d jobs", got, waiting)
	}
	call(p, made.Secret, http.StatusOK)
	awaitEntries(t, s, live+waiting+1)
}

// awaitEntries waits until the ledger has want entries, each of another call, and fails if it
// has more.
func awaitEntries(t *testing.T, s *stack, want int) {
	t.Helper()
	calls := map[string]bool{}
	for range 300 {
		lines := strings.Split(strings.TrimSpace(s.run("usage", "export", "--org", "acme", "--from", "1h")), "\n")
		calls = map[string]bool{}
		for _, line := range lines {
			var e struct {
				ID string `json:"id"`
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.ID != "" {
				if calls[e.ID] {
					t.Fatalf("call %s is in the ledger twice", e.ID)
				}
				calls[e.ID] = true
			}
		}
		if len(calls) >= want {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(calls) != want {
		t.Fatalf("the ledger has %d calls, want %d", len(calls), want)
	}
}
