package front_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// converse opens a WebSocket and sends a message. The channel has the last event and the code with which it was closed.
func (r *running) converse(t *testing.T, text string) <-chan [2]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Bound)
	t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, r.URL()+"/v1/responses", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + r.key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	err = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"response.create","model":"gpt-4o","input":"`+text+`","max_output_tokens":20}`))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan [2]string, 1)
	go func() {
		last := ""
		for {
			_, event, err := conn.Read(ctx)
			if err != nil {
				ended <- [2]string{last, websocket.CloseStatus(err).String()}
				return
			}
			last = string(event)
		}
	}()
	return ended
}

// TestShutdownFinishesSockets: a stopping process waits for the call of a WebSocket, and then closes it.
func TestShutdownFinishesSockets(t *testing.T) {
	t.Parallel()
	r := start(t, app.Proxy, "timeouts: {drain: 0s, shutdown: 2m}\n")
	gate := make(chan struct{})
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		redistest.Came(t, gate)
		return fakeprovider.Behaviour{Text: "fine"}
	})
	ended := r.converse(t, "hi")
	await(t, "the call is at the provider", func() bool { return len(r.fake.Log()) == 1 })
	r.stop()
	await(t, "the listener is closed", func() bool { return r.status(r.URL()+"/v1/models") == 0 })
	select {
	case err := <-r.ended:
		t.Fatalf("the process ended with %v before its call", err)
	default:
	}
	close(gate)
	if got := redistest.Came(t, ended); !strings.Contains(got[0], `"response.completed"`) || got[1] != "StatusGoingAway" {
		t.Errorf("got %q, want a complete answer and 1001", got)
	}
	r.end(t)
	if list := r.entries(t); len(list) != 1 || list[0].Outcome != "completed" {
		t.Errorf("the ledger has %+v, want one completed call", list)
	}
}

// TestShutdownCancelsSockets: a call of a WebSocket that does not end in time is cancelled and settled.
func TestShutdownCancelsSockets(t *testing.T) {
	t.Parallel()
	r := start(t, app.Proxy, "timeouts: {drain: 0s, shutdown: 50ms}\n")
	ended := r.converse(t, "[fake: delay=1h]")
	await(t, "the call is at the provider", func() bool { return len(r.fake.Log()) == 1 })
	r.stop()
	r.end(t)
	if got := redistest.Came(t, ended); got[1] != "StatusInternalError" {
		t.Errorf("the socket got %q, want to be closed with 1011", got)
	}
	if list := r.entries(t); len(list) != 1 || list[0].Outcome != "client_gone" || !list[0].Estimated {
		t.Errorf("the ledger has %+v, want one call that is client_gone and estimated", list)
	}
}
