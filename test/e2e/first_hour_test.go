package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestFirstHour runs all commands of docs/first-hour.md from step 2 on, in order, in one shell and a new directory.
// Only what is the reader's differs: the provider, Redis, ports, and what earlier commands printed.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/first-hour.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## 2.")
	script := "set -e\ntrap 'kill $(jobs -p); wait' EXIT\n"
	for _, block := range shellBlock.FindAllStringSubmatch(rest, -1) {
		if block[1] == "sh" {
			script += block[2]
		}
	}
	provider := fakeprovider.New(fakeprovider.Options{Key: "sk-reader"})
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = provider.Close() })
	calls, proxy, worker := unusedAddress(t), unusedAddress(t), unusedAddress(t)
	const both = "curl -fs --retry 100 --retry-delay 1 --retry-connrefused http://%s/readyz http://%s/readyz\n"
	adapted := strings.NewReplacer(
		"make build && export PATH=$PWD/dist:$PATH\n", "", "export OPENAI_API_KEY=sk-...", "export OPENAI_API_KEY=sk-reader",
		"redis-server --appendonly yes --maxmemory-policy noeviction &    # skip it if you run Redis already\n", "",
		"llmguard check --live", "sed -i 's#https://api.openai.com/v1#"+provider.BaseURL()+"#; s#127.0.0.1:8080#"+calls+
			"#; s#ADMIN_LISTEN:-[0-9.:]*#ADMIN_LISTEN:-"+proxy+"#' llmguard.yaml\nllmguard check --live",
		"ADMIN_LISTEN=127.0.0.1:9091 llmguard worker &\n",
		"ADMIN_LISTEN="+worker+" llmguard worker &\n"+fmt.Sprintf(both, proxy, worker),
		"llmguard keys create --org globex --user hank", "llmguard keys create --org globex --user hank | tee key.txt",
		"KEY=lg_live_...", "KEY=$(grep -o 'lg_live_[A-Za-z0-9]*' key.txt)",
		"for i in 1 2 3;", "for i in 1 2 3 4 5;", // the first calls may precede the limit
		"http://127.0.0.1:8080/", "http://"+calls+"/",
		"llmguard top ", "llmguard top --once ",
		"key-e25ak4qf", "$(llmguard keys list --org globex -o json | grep -o 'key-[a-z0-9]*' | head -1)",
		"llmguard batch submit", "OPENAI_BASE_URL=http://"+calls+"/v1 llmguard batch submit",
	).Replace(script) + "cat answers.jsonl; llmguard doctor\n"
	shell := redistest.Command(t, "bash", "-c", adapted)
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "HOME="+shell.Dir,
		"XDG_CONFIG_HOME="+shell.Dir, "REDIS_URL=redis://"+redistest.Start(t).Addr)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, adapted, out)
	}
	for _, want := range []string{
		"200 after ", "429 after ", "It would fit with", "user-hour: +$1.00 for hank until ", "shown only once): lg_admin_",
		"old key until", `"custom_id":"b"`, "serve ", ": reloaded; no changes", "no hold is overdue in 2 orgs",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// unusedAddress returns a local address below the ports that the system gives to connections.
func unusedAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 21_000+rand.IntN(8_000))
		l, err := net.Listen("tcp", address)
		if err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
