package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// gateway is a server in front of the provider. It answers in its place if answer returns a status,
// and records the requests.
type gateway struct {
	answer func(r *http.Request) (status int, body string)

	mu    sync.Mutex
	asked []string
}

// behind puts a gateway between a rig and its provider.
func (r *rig) behind(answer func(*http.Request) (int, string)) *gateway {
	r.t.Helper()
	g, next := &gateway{answer: answer}, r.fake.Handler()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		g.mu.Lock()
		g.asked = append(g.asked, q.Method+" "+strings.TrimPrefix(q.URL.Path, "/v1"))
		g.mu.Unlock()
		status, body := g.answer(q)
		if status == 0 {
			next.ServeHTTP(w, q)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	r.t.Cleanup(front.Close)
	base, err := url.Parse(front.URL + "/v1")
	if err != nil {
		r.t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "main"}}}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(set.Close)
	r.guard.Policy().Providers = set
	return g
}

// count returns how many of the requests so far start with a text.
func (g *gateway) count(start string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.asked {
		if strings.HasPrefix(one, start) {
			n++
		}
	}
	return n
}

// TestFeesAreForWorkAlone: an answer that reports a failure of the provider has no fee.
func TestFeesAreForWorkAlone(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t, window(roomy, time.Hour))
	var status atomic.Int64
	r.behind(func(q *http.Request) (int, string) {
		if !strings.HasSuffix(q.URL.Path, "/search") {
			return 0, ""
		}
		return int(status.Load()), `{"error":{"message":"no","type":"server_error","param":null,"code":null}}`
	})
	path := "/vector_stores/" + r.make("/vector_stores", `{}`) + "/search"
	for _, free := range []int64{400, 403, 404, 408, 500, 502, 504, 522, 429, 503, 529, 401} { // the last ones pause
		status.Store(free)
		if a := r.as(n.alice, postIt, path, `{"query":"x"}`); a.status < 400 || a.header.Get("X-Llmguard-Cost-Usd") != "" {
			t.Errorf("the provider answers %d: got status %d, cost %q", free, a.status, a.header.Get("X-Llmguard-Cost-Usd"))
		}
		r.spent(0)
	}
}

// TestItemsByReference: an item that is added by its id counts its content.
func TestItemsByReference(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t, window(roomy, time.Hour))
	const long = 3000 // tokens
	a := r.as(n.alice, postIt, "/responses", fmt.Sprintf(`{"model":"gpt-4o","input":"[fake: output=%d]","max_output_tokens":%d}`, long, long))
	var first struct{ Output []struct{ ID string } }
	if err := json.Unmarshal([]byte(a.body), &first); err != nil || a.status != 200 {
		t.Fatalf("got status %d, %s", a.status, a.body)
	}
	reference := fmt.Sprintf(`{"type":"item_reference","id":%q}`, first.Output[0].ID)
	held := func(id string) int64 {
		t.Helper()
		a := r.as(n.alice, postIt, "/responses", fmt.Sprintf(`{"model":"gpt-4o","input":"hi","max_output_tokens":16,"conversation":%q}`, id))
		if a.status != 200 {
			t.Fatalf("got status %d, %s", a.status, a.body)
		}
		return int64(nano(t, a.header.Get("X-Llmguard-Held-Usd")))
	}
	added := r.make("/conversations", `{}`)
	if a := r.as(n.alice, postIt, "/conversations/"+added+"/items", `{"items":[`+reference+`]}`); a.status != 200 {
		t.Fatalf("got status %d, %s", a.status, a.body)
	}
	for how, id := range map[string]string{"added": added, "there from the start": r.make("/conversations", `{"items":[`+reference+`]}`)} {
		if got := held(id); got < long*2500 {
			t.Errorf("an item of %d tokens, %s: held %d, want all of them held", long, how, got)
		}
	}
}

// TestWhatCannotBeNotedIsDeleted: if something that the provider created cannot be recorded in
// Redis, it is deleted there, and its caller gets an error.
func TestWhatCannotBeNotedIsDeleted(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t)
	var broken atomic.Pointer[string] // list whose next write fails
	g := r.behind(func(q *http.Request) (int, string) {
		if q.Method != postIt {
			return 0, ""
		}
		if list := broken.Swap(nil); list != nil { // there was space until now
			if err := r.rdb.Set(q.Context(), *list, "no list", 0).Err(); err != nil {
				t.Error(err)
			}
		}
		return 0, ""
	})
	for _, x := range []struct {
		kind         wire.ObjectKind
		path, body   string
		list, delete string
	}{
		{wire.ObjectConversation, "/conversations", `{}`, ":alice", "DELETE /conversations/conv_"},
		{wire.ObjectVectorStore, "/vector_stores", `{}`, "", "DELETE /vector_stores/vs_"},
		{wire.ObjectContainer, "/containers", `{"name":"c"}`, "", "DELETE /containers/cntr_"},
		{wire.ObjectUpload, "/uploads", `{"purpose":"vision","filename":"a","bytes":5,"mime_type":"text/plain"}`, "", "POST /uploads/upload_"},
	} {
		list := "lg:{acme}:owned-list:" + string(x.kind) + x.list
		broken.Store(&list)
		if a := r.as(n.alice, postIt, x.path, x.body); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: got status %d, %s; want 503", x.kind, a.status, a.body)
		}
		if got := g.count(x.delete); got != 1 {
			t.Errorf("%s: %d times %q in %v, want once", x.kind, got, x.delete, g.asked)
		}
	}
}

// TestSizesAreReadInTurns: however many stores an org has, their provider gets no more requests for
// sizes than there are turns.
func TestSizesAreReadInTurns(t *testing.T) {
	t.Parallel()
	r, _ := thingRig(t)
	g := r.behind(func(*http.Request) (int, string) { return 0, "" })
	const stores, some = 7, 3
	for range stores {
		r.make("/vector_stores", `{}`)
	}
	turns, done := make(chan time.Time, stores), make(chan struct{})
	for range some {
		turns <- time.Now()
	}
	go func() { defer close(done); r.guard.Storage.Charge(t.Context(), r.org, time.Now(), turns) }()
	r.until("the turns are used", func() bool { return g.count("GET /vector_stores/") == some })
	select {
	case <-done:
		t.Error("the sizes are read without a turn each")
	default:
	}
	if got := g.count("GET /vector_stores/"); got != some {
		t.Errorf("%d sizes are read in %d turns", got, some)
	}
	close(turns)
	redistest.Came(t, done)
	if got := g.count("GET /vector_stores/"); got != stores {
		t.Errorf("%d sizes are read in the end, want all %d", got, stores)
	}
}

// TestContainersOfToolsHaveTheirSize: a container that the provider creates for an answer is
// charged, when it is used again, by the size that the request declared.
func TestContainersOfToolsHaveTheirSize(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t)
	r.org.AllowBuiltinTools = true
	var requests atomic.Int64
	r.behind(func(*http.Request) (int, string) {
		made := requests.Add(1)
		return http.StatusOK, fmt.Sprintf(`{"id":"resp_%d","object":"response","status":"completed","model":"gpt-4o","output":[
			{"type":"code_interpreter_call","id":"ci_%d","status":"completed","container_id":"cntr_%d"}],
			"usage":{"input_tokens":5,"output_tokens":5,"total_tokens":10}}`, made, made, made)
	})
	for i, x := range []struct{ tools, want string }{
		{`{"type":"code_interpreter","container":{"type":"auto"}}`, "1g"},
		{`{"type":"code_interpreter","container":{"type":"auto","memory_limit":"4g"}}`, "4g"},
		{`{"type":"web_search"},{"type":"code_interpreter","container":{"memory_limit":"64g","type":"auto"}}`, "64g"},
	} {
		a := r.as(n.alice, postIt, "/responses", `{"model":"gpt-4o","input":"x","max_output_tokens":16,"tools":[`+x.tools+`]}`)
		if a.status != 200 {
			t.Fatalf("got status %d, %s", a.status, a.body)
		}
		note, err := r.guard.Objects.Find(t.Context(), r.caller(), wire.ObjectContainer, fmt.Sprint("cntr_", i+1))
		if err != nil || note.Unit != pricing.Service+"container-"+x.want {
			t.Errorf("%s: noted as %q, %v; want %s", x.tools, note.Unit, err, x.want)
		}
	}
}
