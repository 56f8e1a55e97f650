package e2e

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestFinance: after live calls and corrections, the exports of two orgs, to a directory and a
// bucket, have the cost of the calls to the nano-dollar, and so has the statement.
func TestFinance(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
labels: [{name: project, from: [header X-Project], usage: true}]
providers: [{id: openai, base_url: "${provider}", api_key: "${provider_key}"}]
orgs:
  - {id: acme, users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]}
  - {id: zeta, name: Zeta Ltd, users: [{id: bob, keys: [{id: k2, hash: "${key:bob}"}]}]}
`)
	p := s.proxy()
	costs := map[string]int64{}
	for i, who := range []string{"alice", "bob", "alice"} {
		a := post(p.URL+"/chat/completions", s.keys[who], chat("gpt-4o-mini", "hi", small), "X-Project", []string{"web", "app"}[i%2])
		want(t, "a call", a, 200, "")
		costs[who] += nanos(t, a.header.Get("X-Llmguard-Cost-Usd"))
	}
	redistest.Eventually(t, "the calls are in the ledger", func() bool {
		return strings.Count(s.finance("usage", "export", "--from", "1h"), "\n") == 3
	})
	s.finance("usage", "adjust", "--org", "acme", "--user", "alice", "--amount", "-$0.000000007", "--reason", "a refund")
	costs["alice"] -= 7

	month, dir := time.Now().UTC().Format("2006-01"), t.TempDir()
	s.finance("usage", "focus", "--month", month, "--by", "user,label:project", "--to", dir)
	s.finance("usage", "statement", "--month", month, "--format", "csv", "--to", dir+"/new/")
	bucket := s.bucket(month)
	for org, who := range map[string]string{"acme": "alice", "zeta": "bob"} {
		if got := csvSum(t, contents(t, dir+"/focus-"+org+"-"+month+".csv"), "BilledCost", ""); got != costs[who] {
			t.Errorf("the CSV of %s has %d nano-USD, want %d", org, got, costs[who])
		}
		if got := csvSum(t, contents(t, dir+"/new/statement-"+org+"-"+month+".csv"), "cost_usd", "total"); got != costs[who] {
			t.Errorf("the statement of %s has %d nano-USD, want %d", org, got, costs[who])
		}
		if got := csvSum(t, bucket("books/llm/focus-"+org+"-"+month+".csv"), "BilledCost", ""); got != costs[who] {
			t.Errorf("the object of %s has %d nano-USD, want %d", org, got, costs[who])
		}
	}
	out, err := redistest.Command(t, binary, "usage", "focus", "-c", s.path, "--month", month).CombinedOutput()
	var code *exec.ExitError
	if !errors.As(err, &code) || code.ExitCode() != 2 || !strings.Contains(string(out), "2 orgs need a file each") {
		t.Errorf("two orgs to one output: got %v %s, want exit code 2", err, out)
	}
	out, err = redistest.Command(t, binary, "usage", "focus", "-c", s.path, "--format", "parquet", "--to", dir).CombinedOutput()
	if !errors.As(err, &code) || code.ExitCode() != 2 || !strings.Contains(string(out), "parquet was removed in 0.2.0; use csv") {
		t.Errorf("Parquet: got %v %s, want exit code 2 and what to use instead", err, out)
	}
	out, err = redistest.Command(t, binary, "usage", "focus", "-c", s.path, "--org", "acme", "--month", "2020-01").CombinedOutput()
	if !errors.As(err, &code) || code.ExitCode() != 3 || !strings.Contains(string(out), "incomplete") {
		t.Errorf("a month that is gone: got %v %s, want exit code 3", err, out)
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// finance runs a command with the configuration of the stack and returns its output.
func (s *stack) finance(args ...string) string {
	s.t.Helper()
	cmd := redistest.Command(s.t, binary, append(args, "-c", s.path)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

// bucket exports files to a bucket and returns a function that reads its objects.
func (s *stack) bucket(month string) func(name string) []byte {
	s.t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("finance"); err != nil {
		s.t.Fatal(err)
	}
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	s.t.Cleanup(srv.Close)
	cmd := redistest.Command(s.t, binary, "usage", "focus", "-c", s.path, "--month", month, "--to",
		"s3://finance/books/llm?region=us-east-1&s3ForcePathStyle=true&endpoint="+srv.URL)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("to a bucket: %v\n%s", err, out)
	}
	return func(name string) []byte {
		s.t.Helper()
		object, err := backend.GetObject("finance", name, nil)
		if err != nil {
			s.t.Fatal(name, err)
		}
		defer object.Contents.Close()
		text, err := io.ReadAll(object.Contents)
		if err != nil {
			s.t.Fatal(err)
		}
		return text
	}
}

// csvSum adds up a column, of the lines of a section if one is given.
func csvSum(t *testing.T, text []byte, column, section string) (sum int64) {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range lines[0] {
		at[name] = i
	}
	for _, line := range lines[1:] {
		if section == "" || line[at["section"]] == section {
			sum += nanos(t, line[at[column]])
		}
	}
	return sum
}

// nanos parses a decimal in USD.
func nanos(t *testing.T, text string) int64 {
	t.Helper()
	whole, rest, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole+(rest + "000000000")[:9], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
