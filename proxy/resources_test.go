package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

const (
	getIt  = http.MethodGet
	postIt = http.MethodPost
	dropIt = http.MethodDelete
)

// neighbours are keys of other users: bob is alice's colleague, carl is in another org.
type neighbours struct{ alice, bob, carl string }

// thingRig is a rig whose guard records what the provider stores, with neighbors.
func thingRig(t *testing.T, limits ...budget.Limit) (*rig, neighbours) {
	t.Helper()
	r := newRig(t, queue.Pool{}, nil, limits...)
	keeping(t, r)
	r.proxy.objects.pacer.reads = newReads(readBounds{what: "requests", perSecond: 1e6, burst: 1e6, atOnce: 100})
	n := neighbours{r.key, keys.New(keys.Live), keys.New(keys.Live)}
	other := r.guard.Policy().Orgs["other"]
	r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, n.alice): {Org: r.org, User: "alice", Key: "k1"},
		keys.Hash(keys.Pepper{}, n.bob):   {Org: r.org, User: "bob", Key: "k2"},
		keys.Hash(keys.Pepper{}, n.carl):  {Org: other, User: "carl", Key: "k3"},
	}})
	return r, n
}

// as sends a JSON request with the given key.
func (r *rig) as(key, method, path, body string) answer {
	r.t.Helper()
	was := r.key
	defer func() { r.key = was }()
	r.key = key
	return r.call(method, "/v1"+path, body, "Content-Type", "application/json")
}

// make sends a request that creates something, and returns its id.
func (r *rig) make(path, body string) string {
	r.t.Helper()
	a := r.as(r.key, postIt, path, body)
	if a.status != 200 || a.id() == "" {
		r.t.Fatalf("POST %s: got status %d, %s; want something with an id %v", path, a.status, a.body, r.records(1))
	}
	return a.id()
}

// file uploads a file of the given size.
func (r *rig) file(size int) string {
	r.t.Helper()
	a := r.upload(false, part{"file", "a.pdf", strings.Repeat("x", size)}, part{field: "purpose", text: "user_data"})
	if a.status != 200 {
		r.t.Fatalf("got status %d, %s; want a file", a.status, a.body)
	}
	return a.id()
}

// made creates one of everything and returns the ids by kind.
func (r *rig) made() map[wire.ObjectKind]string {
	r.t.Helper()
	chat := r.chat(prompt("hi", `"max_tokens":5,"store":true`))
	return map[wire.ObjectKind]string{
		wire.ObjectConversation: r.make("/conversations", `{}`),
		wire.ObjectUpload:       r.make("/uploads", `{"purpose":"user_data","filename":"a.pdf","bytes":5,"mime_type":"text/plain"}`),
		wire.ObjectVectorStore:  r.make("/vector_stores", `{"name":"vs_0123456789abcdef0"}`), // a name is not an id
		wire.ObjectContainer:    r.make("/containers", `{"name":"c"}`),
		wire.ObjectFile:         r.file(5),
		wire.ObjectCompletion:   chat.id(),
		wire.ObjectResponse:     r.make("/responses", `{"model":"gpt-4o","input":"hi","max_output_tokens":16}`),
	}
}

// TestThingsAreTheOrgs: at every path, what a provider stores is used only by the org that created
// it, and content written by users only by its writer.
func TestThingsAreTheOrgs(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t)
	made := r.made()
	sent := r.fake.Totals().Requests
	for _, op := range wire.Operations() {
		of := op.Object.Kind
		if !op.Of() {
			continue
		}
		path := strings.Replace(op.Path, "*", made[of], 1)
		if !strings.Contains(op.Path, "*") {
			path += made[of]
		}
		path = strings.ReplaceAll(path, "*", "x")
		if strings.HasSuffix(path, "/") {
			path += "x"
		}
		code := strings.ReplaceAll(string(of), ".", "_") + "_not_found"
		r.as(n.carl, op.Method, path, "{}").fails(t, http.StatusNotFound, code)
		if of == wire.ObjectConversation || of == wire.ObjectCompletion || of == wire.ObjectResponse {
			r.as(n.bob, op.Method, path, "{}").fails(t, http.StatusNotFound, code)
		}
	}
	if got := r.fake.Totals().Requests; got != sent {
		t.Errorf("%d requests about others' things reached the provider, want none", got-sent)
	}
	for kind, path := range map[wire.ObjectKind]string{wire.ObjectVectorStore: "/vector_stores/", wire.ObjectContainer: "/containers/", wire.ObjectFile: "/files/"} {
		for _, key := range []string{n.alice, n.bob} {
			if a := r.as(key, getIt, path+made[kind], ""); a.status != 200 || a.id() != made[kind] {
				t.Errorf("%s: got status %d, %s; want what the org has made", kind, a.status, a.body)
			}
		}
	}
	r.as(n.alice, getIt, "/vector_stores/vs_1%2F..%2Fmodels", "").fails(t, http.StatusNotFound, "unknown_url")
	r.as(n.alice, getIt, "/vector_stores/"+made[wire.ObjectVectorStore]+"/files/%2E%2E", "").fails(t, http.StatusNotFound, "vector_store_not_found")
}

// TestThingsInBodiesAreTheOrgs: ids in bodies are checked like those in paths.
func TestThingsInBodiesAreTheOrgs(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t)
	made := r.made()
	file, store := made[wire.ObjectFile], made[wire.ObjectVectorStore]
	up := made[wire.ObjectUpload]
	r.org.AllowBuiltinTools = true
	r.guard.Policy().Orgs["other"].AllowBuiltinTools = true
	r.key = n.carl
	theirs := r.make("/vector_stores", `{}`)
	container := r.make("/containers", `{"name":"c"}`)
	upload := r.make("/uploads", `{"purpose":"vision","filename":"a","bytes":5,"mime_type":"text/plain"}`)
	conversation := r.make("/conversations", `{}`)
	r.key = n.alice
	sent := r.fake.Totals().Requests
	respond := func(rest string) string { return `{"model":"gpt-4o","max_output_tokens":20,` + rest + `}` }
	for _, x := range []struct{ path, body, code string }{
		{"/vector_stores", fmt.Sprintf(`{"file_ids":[%q]}`, file), "file_not_found"},
		{"/vector_stores/" + theirs + "/files", fmt.Sprintf(`{"file_id":%q}`, file), "file_not_found"},
		{"/vector_stores/" + theirs + "/file_batches", fmt.Sprintf(`{"files":[{"file_id":%q}]}`, file), "file_not_found"},
		{"/containers", fmt.Sprintf(`{"name":"x","file_ids":[%q]}`, file), "file_not_found"},
		{"/containers", `{"name":"x","skills":[{"type":"skill_reference","skill_id":"skill_1"}]}`, "skill_not_found"},
		{"/containers/" + container + "/files", fmt.Sprintf(`{"file_id":%q}`, file), "file_not_found"},
		{"/uploads/" + upload + "/complete", `{"part_ids":["part_1"]}`, "upload_part_not_found"},
		{
			"/conversations/" + conversation + "/items",
			fmt.Sprintf(`{"items":[{"role":"user","content":[{"type":"input_file","file_id":%q}]}]}`, file), "file_not_found",
		},
		{"/conversations/" + conversation + "/items", `{"items":[{"type":"item_reference","id":"msg_1"}]}`, "item_not_found"},
		{"/responses", respond(fmt.Sprintf(`"input":"x","conversation":%q`, made[wire.ObjectConversation])), "conversation_not_found"},
		{"/responses", respond(fmt.Sprintf(`"input":"x","conversation":{"id":%q}`, made[wire.ObjectConversation])), "conversation_not_found"},
		{"/responses", respond(fmt.Sprintf(`"input":"x","tools":[{"type":"file_search","vector_store_ids":[%q]}]`, store)), "vector_store_not_found"},
		{"/responses", respond(fmt.Sprintf(`"input":"x","tools":[{"type":"code_interpreter","container":%q}]`, made[wire.ObjectContainer])), "container_not_found"},
		{"/responses", respond(fmt.Sprintf(`"input":[{"role":"user","content":[{"type":"input_image","file_id":%q}]}]`, file)), "file_not_found"},
		{"/chat/completions", fmt.Sprintf(`{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":%q}}]}]}`, file), "file_not_found"},
	} {
		r.as(n.carl, postIt, x.path, x.body).fails(t, http.StatusNotFound, x.code)
	}
	if got := r.fake.Totals().Requests; got != sent {
		t.Errorf("%d of the refused requests reached the provider", got-sent)
	}
	// The same requests with the caller's own ids are accepted. A part belongs to its own upload.
	body, kind := form(t, field{"data", "", []byte("12345")})
	a := r.call(postIt, "/v1/uploads/"+up+"/parts", body, "Content-Type", kind)
	other := r.make("/uploads", `{"purpose":"vision","filename":"a","bytes":5,"mime_type":"text/plain"}`)
	r.as(n.alice, postIt, "/uploads/"+other+"/complete", fmt.Sprintf(`{"part_ids":[%q]}`, a.id())).fails(t, http.StatusNotFound, "not_found")
	a = r.as(n.alice, postIt, "/uploads/"+up+"/complete", fmt.Sprintf(`{"part_ids":[%q]}`, a.id()))
	var done struct{ File struct{ ID string } }
	if err := json.Unmarshal([]byte(a.body), &done); err != nil || a.status != 200 {
		t.Fatalf("got status %d, %s; want a completed upload", a.status, a.body)
	}
	for _, x := range []struct{ path, body string }{
		{"/vector_stores/" + store + "/files", fmt.Sprintf(`{"file_id":%q,"attributes":{"file_id":"file-0123456789abcdef"}}`, done.File.ID)},
		{"/vector_stores/" + store + "/file_batches", fmt.Sprintf(`{"file_ids":[%q]}`, file)},
		{"/responses", respond(fmt.Sprintf(`"input":"x","tools":[{"type":"file_search","vector_store_ids":[%q]}]`, store))},
		{"/responses", respond(fmt.Sprintf(`"input":[{"role":"user","content":[{"type":"input_file","file_id":%q}]}]`, file))},
	} {
		if a := r.as(n.alice, postIt, x.path, x.body); a.status != 200 {
			t.Errorf("POST %s: got status %d, %s; want 200", x.path, a.status, a.body)
		}
	}
}

// TestListsHaveTheOrgsAlone: a list has what the org created, in every order and page, and nothing
// of other orgs that share the account.
func TestListsHaveTheOrgsAlone(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t)
	var ids []string
	for range 5 {
		ids = append(ids, r.make("/vector_stores", `{"name":"mine"}`))
		r.fake.KeepThing("/v1/vector_stores")
		r.until("the next one is newer", func() bool { return time.Now().UnixMilli()%10 == 0 })
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	page := func(key, query string) (got []string, more bool) {
		t.Helper()
		a := r.as(key, getIt, "/vector_stores"+query, "")
		var l list[struct{ ID string }]
		if err := json.Unmarshal([]byte(a.body), &l); err != nil || a.status != 200 {
			t.Fatalf("GET %s: got status %d, %s", query, a.status, a.body)
		}
		for _, one := range l.Data {
			got = append(got, one.ID)
		}
		return got, l.HasMore
	}
	for _, x := range []struct {
		query string
		want  []string
		more  bool
	}{
		{"", newest, false},
		{"?order=asc", ids, false},
		{"?limit=2", newest[:2], true},
		{"?limit=2&after=" + newest[1], newest[2:4], true},
		{"?limit=2&after=" + newest[3], newest[4:], false},
		{"?limit=2&before=" + newest[3], newest[1:3], true},
		{"?name=theirs", nil, false},
	} {
		if got, more := page(n.bob, x.query); !slices.Equal(got, x.want) || more != x.more {
			t.Errorf("%s: got %v, %v; want %v, %v", x.query, got, more, x.want, x.more)
		}
	}
	if got, _ := page(n.carl, ""); len(got) != 0 {
		t.Errorf("another org's list has %v, want nothing", got)
	}
	r.as(n.carl, getIt, "/vector_stores?after="+ids[0], "").fails(t, http.StatusBadRequest, "invalid_value")
	if a := r.as(n.alice, dropIt, "/vector_stores/"+ids[2], ""); a.status != 200 {
		t.Fatalf("got status %d, %s; want it deleted", a.status, a.body)
	}
	if got, _ := page(n.alice, ""); len(got) != 4 || slices.Contains(got, ids[2]) {
		t.Errorf("got %v after one was deleted, want the four others", got)
	}
}

// TestFilesOfOtherPurposes: a file that is not for batches is sent to the provider unchanged, is
// listed after those for batches, and is deleted there.
func TestFilesOfOtherPurposes(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	keeping(t, r)
	batch := r.upload(false, lines, purpose).id()
	content := strings.Repeat("\x00\r\n--x", 50)
	other := r.upload(false, part{"file", `a "b".bin`, content}, part{field: "purpose", text: "vision"}).id()
	kept := r.fake.Files()
	if len(kept) != 1 || kept[0].ID != other || kept[0].Filename != `a "b".bin` || kept[0].Purpose != "vision" || string(kept[0].Content) != content {
		t.Fatalf("the provider keeps %+v, want the file as it was sent", kept)
	}
	for query, want := range map[string][]string{"": {batch, other}, "?purpose=batch": {batch}, "?purpose=vision": {other}, "?after=" + batch: {other}, "?limit=1": {batch}} {
		a := r.call(getIt, "/v1/files"+query, "")
		var l list[fileView]
		if err := json.Unmarshal([]byte(a.body), &l); err != nil {
			t.Fatal(err, a.body)
		}
		var got []string
		for _, f := range l.Data {
			got = append(got, f.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("GET /files%s: got %v, want %v", query, got, want)
		}
	}
	if a := r.call(getIt, "/v1/files/"+other+"/content", ""); a.body != content {
		t.Errorf("got content %q, want %q", a.body, content)
	}
	if a := r.call(dropIt, "/v1/files/"+other, ""); a.status != 200 || len(r.fake.Files()) != 0 {
		t.Errorf("got status %d, %s; want it deleted at the provider", a.status, a.body)
	}
	r.call(getIt, "/v1/files/"+other, "").fails(t, http.StatusNotFound, "file_not_found")
	r.upload(false, part{"file", "a", strings.Repeat("x", 1001)}, part{field: "purpose", text: "vision"}).fails(t, http.StatusRequestEntityTooLarge, "request_too_large")
}

// TestStoredPromptsAreListed: a request may name a prompt that the operator has listed for its org;
// it runs with the priced model and is held for what the prompt adds.
func TestStoredPromptsAreListed(t *testing.T) {
	t.Parallel()
	r, n := thingRig(t, window(roomy, time.Hour))
	r.guard.Policy().Providers.All()[0].Prompts = map[string]providers.Prompt{
		"pmpt_1": {Model: "gpt-4o", InputTokens: 1_000_000, Orgs: []string{"acme"}},
	}
	body := func(id string) string {
		return fmt.Sprintf(`{"prompt":{"id":%q,"variables":{"name":"Ann"}},"input":"hi","max_output_tokens":20}`, id)
	}
	a := r.as(n.alice, postIt, "/responses", body("pmpt_1"))
	log := r.fake.Log()
	if a.status != 200 || log[len(log)-1].Model != "gpt-4o" || a.header.Get("X-Llmguard-Held-Usd") < "2.5" {
		t.Errorf("got status %d, %s, held %s; want gpt-4o, and the prompt held", a.status, a.body, a.header.Get("X-Llmguard-Held-Usd"))
	}
	sent := r.fake.Totals().Requests
	r.as(n.alice, postIt, "/responses", body("pmpt_2")).fails(t, http.StatusNotFound, "prompt_not_found")
	r.as(n.carl, postIt, "/responses", body("pmpt_1")).fails(t, http.StatusNotFound, "prompt_not_found")
	r.as(n.alice, postIt, "/responses", `{"input":"hi"}`).fails(t, http.StatusBadRequest, "missing_required_parameter")
	if got := r.fake.Totals().Requests; got != sent {
		t.Errorf("%d of the refused requests reached the provider", got-sent)
	}
}

// TestTrailersAreAnnounced: the cost of a stream follows it as an announced trailer if the client
// accepts trailers; others get none.
func TestTrailersAreAnnounced(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	for _, x := range []struct {
		header []string
		want   bool
	}{
		{[]string{"TE", "trailers"}, true},
		{[]string{"TE", "gzip;q=0.5, Trailers"}, true},
		{[]string{"TE", "", "Prefer", "wait=5, cost-trailer"}, true},
		{[]string{"TE", ""}, false},
		{[]string{"TE", "gzip"}, false},
	} {
		a := r.open(t.Context(), prompt("hi", `"max_tokens":5,"stream":true`), x.header...)
		announced := len(a.resp.Trailer) > 0
		got := a.rest().trailer.Get("X-Llmguard-Cost-Usd") != ""
		if announced != x.want || got != x.want {
			t.Errorf("%q: announced %v, sent %v, want %v", x.header, announced, got, x.want)
		}
	}
}

// TestImagesWithoutModel: the API's default model is priced, and sent to the provider.
func TestImagesWithoutModel(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	picture := field{"image", "", fakeprovider.Wav(16_000, 16_000)}
	edits, kind := form(t, picture, field{"prompt", "an otter", nil}, field{"size", "256x256", nil})
	variations, other := form(t, picture, field{"size", "256x256", nil})
	for _, x := range []struct{ path, body, kind string }{
		{"/v1/images/generations", `{"prompt":"an otter","size":"256x256"}`, "application/json"},
		{"/v1/images/generations", `{"prompt":"an otter","size":"256x256","model":null}`, "application/json"},
		{"/v1/images/edits", edits, kind},
		{"/v1/images/variations", variations, other},
	} {
		a := r.call(postIt, x.path, x.body, "Content-Type", x.kind)
		log := r.fake.Log()
		if model := log[len(log)-1].Model; a.status != 200 || model != "dall-e-2" || a.header.Get("X-Llmguard-Cost-Usd") != "0.016000000" {
			t.Errorf("%s: got status %d, %.100s, model %q, cost %q; want dall-e-2 for 0.016", x.path, a.status, a.body, model, a.header.Get("X-Llmguard-Cost-Usd"))
		}
	}
}

// TestNotServedIsExplained: a path that is not served refers to the page that explains why.
func TestNotServedIsExplained(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	for _, path := range []string{"/v1/fine_tuning/jobs", "/v1/assistants", "/v1/videos", "/v1/organization/costs"} {
		message := r.call(getIt, path, "").fails(t, http.StatusNotFound, "unknown_url")
		if !strings.Contains(message, "docs/openai-api.md#not-served") {
			t.Errorf("%s: the error %q names no page", path, message)
		}
	}
}

// TestPatternsAreNoPaths: the * of a pattern represents an id, and is not an id itself.
func TestPatternsAreNoPaths(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	for _, path := range []string{"/v1/conversations/*/items", "/v1/vector_stores/*/files/*/content", "/v1/files/*", "/v1/containers/*"} {
		if a := r.call(getIt, path, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: got status %d, %s; want 404", path, a.status, a.body)
		}
	}
}

// caller returns alice.
func (r *rig) caller() guard.Caller { return guard.Caller{Org: r.org, User: "alice", Key: "k1"} }
