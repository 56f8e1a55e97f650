package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestWhyCommandStartsTheJob: the command that `llmguard why` prints for a waiting job, run
// unchanged in a shell, lets the job start. The refusal is counted for its user and limit.
func TestWhyCommandStartsTheJob(t *testing.T) {
	t.Parallel()
	price := costOfOne(t)
	s := newStack(t, fakeprovider.Options{}, simple(fmt.Sprintf("[{name: hour, subject: user, amount: %q, window: 1h}]", (price+price/2).String())))
	proxy := s.proxy()
	s.worker()
	body := chat("gpt-4o", "hi", fmt.Sprintf(`"max_tokens":%d`, callOutput))
	if a := post(proxy.URL+"/chat/completions", s.keys["alice"], body); a.status != http.StatusOK {
		t.Fatalf("the first call: %d %s", a.status, a.body)
	}
	var job struct{ ID string }
	a := post(proxy.URL+"/chat/completions", s.keys["alice"], body, "Prefer", "respond-async")
	if err := json.Unmarshal([]byte(a.body), &job); err != nil || job.ID == "" {
		t.Fatalf("no job: %s", a.body)
	}
	bin := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(bin, "llmguard")); err != nil {
		t.Fatal(err)
	}
	sh := func(line string) string {
		c := redistest.Command(t, "sh", "-c", line)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "LLMGUARD_ADMIN_URL=", "LLMGUARD_ADMIN_KEY=", "LLMGUARD_CONTEXT=")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	why := "llmguard why " + job.ID + " -c " + s.path
	var command string
	until(t, "the job waits for the limit", func() bool {
		out := sh(why)
		_, after, found := strings.Cut(out, "What to do:\n")
		command, _, _ = strings.Cut(strings.TrimSpace(after), "\n")
		return found && strings.Contains(out, "It waits for the limit hour")
	})
	until(t, "the wait is counted", func() bool {
		out := sh("llmguard limits refusals -c " + s.path)
		return strings.Contains(out, "alice") && strings.Contains(out, "hour")
	})
	t.Log(command)
	sh(command)
	proxy.awaitJob(s.keys["alice"], job.ID)
	if out := sh(why); !strings.Contains(out, "The job is not waiting: it is succeeded since ") {
		t.Errorf("after it: %s", out)
	}
}
