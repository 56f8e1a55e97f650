package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// alertmanagerNames are the names of the program: upstream's and Debian's.
var alertmanagerNames = []string{"alertmanager", "prometheus-alertmanager"}

// TestComposeAlerts runs Alertmanager with the command and the configuration of
// docker-compose.yml. An alert reaches the webhook in .env, and is shown in the UI's API whether or
// not there is one.
func TestComposeAlerts(t *testing.T) {
	program := ""
	for _, name := range alertmanagerNames {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		t.Skip("alertmanager is not installed (Debian: apt-get install prometheus-alertmanager): " +
			"its configuration is not run")
	}
	t.Parallel()
	for _, chat := range []bool{true, false} {
		messages := make(chan string, 10)
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			messages <- r.URL.Path + " " + string(body)
		}))
		t.Cleanup(receiver.Close)
		url := ""
		if chat {
			url = receiver.URL + "/services/T/B/secret"
		}
		a := startAlertmanager(t, program, url)
		a.put("LlmguardRedisSlow", "scripts take 80 ms")
		redistest.Eventually(t, "the alert in the UI", func() bool {
			return strings.Contains(a.get("/api/v2/alerts"), "LlmguardRedisSlow")
		})
		if !chat {
			if log := a.get("/metrics"); strings.Contains(log, `notifications_total{integration="slack"} 1`) {
				t.Error("got a notification without a webhook")
			}
			continue
		}
		select {
		case got := <-messages:
			for _, want := range []string{
				"/services/T/B/secret", "FIRING: LlmguardRedisSlow", "scripts take 80 ms",
				"docs/operations/LlmguardRedisSlow.md",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("got the message %s, want %q in it", got, want)
				}
			}
		case <-time.After(time.Minute):
			t.Error("got no message at the webhook")
		}
	}
}

// alertmanager is a running Alertmanager.
type alertmanager struct {
	t   *testing.T
	url string
}

// startAlertmanager runs the command of docker-compose.yml by its shell, in a directory in the
// place of /tmp, without the wait for other alerts.
func startAlertmanager(t *testing.T, program, webhook string) *alertmanager {
	t.Helper()
	c := loadCompose(t, []string{"OPENAI_API_KEY=x", "ALERT_WEBHOOK_URL=" + webhook})
	s := c.Services["alertmanager"]
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listen.Addr().String()
	listen.Close()
	dir := t.TempDir()
	config := adapt(t, c.mounted(t, "alertmanager", "/etc/alertmanager/alertmanager.yml"),
		"group_wait: 30s", "group_wait: 0s", "/tmp/webhook_url", filepath.Join(dir, "webhook_url"))
	command := strings.NewReplacer(
		"/etc/alertmanager/alertmanager.yml", config, "/bin/alertmanager", program+" --web.listen-address="+addr,
		"=/alertmanager", "="+t.TempDir(), "/tmp/", dir+"/",
	).Replace(s.Command[0])
	cmd := redistest.Process(t, s.Entrypoint[0], append(s.Entrypoint[1:], command)...)
	for name, value := range s.Environment {
		cmd.Env = append(cmd.Env, name+"="+*value)
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("alertmanager said:\n%s", log.Bytes())
		}
	})
	a := &alertmanager{t, "http://" + addr}
	redistest.Eventually(t, "a ready Alertmanager", func() bool {
		resp, err := client.Get(a.url + "/-/ready")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return a
}

// put reports an alert as Prometheus does.
func (a *alertmanager) put(name, summary string) {
	a.t.Helper()
	body, err := json.Marshal([]map[string]any{{
		"labels": map[string]string{"alertname": name, "severity": "warning"},
		"annotations": map[string]string{
			"summary": summary, "runbook_url": "https://github.com/llmguard/llmguard/blob/main/docs/operations/" + name + ".md",
		},
	}})
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := client.Post(a.url+"/api/v2/alerts", "application/json", bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		a.t.Fatalf("got status %d, want 200", resp.StatusCode)
	}
}

func (a *alertmanager) get(path string) string {
	a.t.Helper()
	resp, err := client.Get(a.url + path)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		a.t.Fatalf("%s: got %d, %v", path, resp.StatusCode, err)
	}
	return string(body)
}
