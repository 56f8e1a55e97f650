package front_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestAbsentBody checks that a client without a valid key cannot keep a connection open by
// announcing a body that never comes, on either listener.
func TestAbsentBody(t *testing.T) {
	t.Parallel()
	r := start(t, app.Proxy, "timeouts: {drain: 0s, read_header: 1s}\n")
	var wg sync.WaitGroup
	for name, to := range map[string]struct{ url, head string }{
		"callers, wrong key": {r.URL(), "POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer wrong"},
		"callers, no route":  {r.URL(), "POST /v1/none HTTP/1.1"},
		"callers, files":     {r.URL(), "POST /v1/files HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x"},
		"operators":          {r.AdminURL(), "POST /admin/v1/orgs HTTP/1.1"},
		"operators, health":  {r.AdminURL(), "POST /healthz HTTP/1.1"},
	} {
		for _, length := range []string{"Content-Length: 1000", "Content-Length: 100000000", "Transfer-Encoding: chunked"} {
			wg.Go(func() {
				conn, err := net.Dial("tcp", strings.TrimPrefix(to.url, "http://"))
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.WriteString(conn, to.head+"\r\nHost: x\r\n"+length+"\r\n\r\n")
				answer, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 40") {
					t.Errorf("%s, %s: got %q, %v; want a refusal and the connection closed", name, length, answer, err)
				}
			})
		}
	}
	redistest.Wait(t, wg.Wait)
}
