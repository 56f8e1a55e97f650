package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestFinanceSchedule: the processes write the files of finance.export and ledger.export_dir on their own, once, as
// the command does, also for an org that was deleted.
func TestFinanceSchedule(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
labels: [{name: project, from: [header X-Project], usage: true}]
providers: [{id: openai, base_url: "${provider}", api_key: "${provider_key}"}]
orgs:
  - {id: acme, users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]}
  - {id: zeta, users: [{id: bob, keys: [{id: k2, hash: "${key:bob}"}]}]}
# more
`)
	month := func() string { return time.Now().UTC().Add(-time.Hour).AddDate(0, 0, -1).Format("2006-01") }
	p := s.proxy()
	for _, who := range []string{"alice", "bob", "alice"} {
		want(t, "a call", post(p.URL+"/chat/completions", s.keys[who], chat("gpt-4o-mini", "hi", small), "X-Project", "web"), 200, "")
	}
	redistest.Eventually(t, "the calls are settled", func() bool { return len(s.entries("acme")) == 2 && len(s.entries("zeta")) == 1 })
	p.terminate()

	dir := t.TempDir()
	s.replace("  - {id: zeta, users: [{id: bob, keys: [{id: k2, hash: \"", "#")
	s.replace("# more", "ledger: {export_dir: "+dir+"/ledger}\nfinance: {export: {every: day, to: "+dir+"/focus, by: [user, \"label:project\"]}}")
	began := month()
	a, b := s.proxy(), s.worker()
	read := func(org string) string {
		text, _ := os.ReadFile(filepath.Join(dir, "focus", "focus-"+org+"-"+began+".csv"))
		return string(text)
	}
	rdb := s.redis.Client()
	for _, org := range []string{"acme", "zeta"} {
		redistest.Eventually(t, "the files are written", func() bool {
			return read(org) != "" && len(rdb.HGet(t.Context(), "lg:{"+org+"}:export-focus", "position").Val()) == len(time.DateOnly)
		})
		got := s.finance("usage", "focus", "--org", org, "--month", began, "--by", "user,label:project")
		if month() == began && read(org) != got {
			t.Errorf("%s: got the file %s, want %s", org, read(org), got)
		}
	}
	for _, org := range []string{"acme", "zeta"} {
		redistest.Eventually(t, "the ledger is written", func() bool {
			days, _ := filepath.Glob(filepath.Join(dir, "ledger", org, "*.jsonl"))
			return len(days) > 0
		})
	}
	files, err := os.ReadDir(filepath.Join(dir, "focus"))
	if err != nil || len(files) != 2 && month() == began {
		t.Errorf("got the files %v, error %v, want one for each org", files, err)
	}
	a.terminate()
	b.terminate()
	written := 0
	for _, process := range []*process{a, b} {
		for _, line := range process.lines {
			if line["msg"] == "finance export written" {
				written++
			}
		}
	}
	if written != 2 && month() == began {
		t.Errorf("got %d files written, want each once", written)
	}
}
