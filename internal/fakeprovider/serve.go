package fakeprovider

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// exchange is one request while it is served.
type exchange struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	ctx   context.Context
	q     *Request
	b     Behaviour
	rec   *Record
	start time.Time
	id    string // of the request
	// claude is whether the request is to Anthropic's API.
	claude bool
}

// Handler responds like https://api.openai.com; paths start with /v1.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{s: s, w: w, r: r, ctx: r.Context(), rec: s.log.begin(r), start: time.Now(), claude: anthropic(r)}
		defer s.log.end(x.rec)
		x.serve()
	})
}

// serve reads, checks and answers the request. Rejections are returned as errors.
func (x *exchange) serve() {
	x.headers()
	err := x.answer()
	var refused *apiError
	switch {
	case errors.As(err, &refused):
		x.refuse(refused)
	case err != nil:
		x.outcome(ClientGone)
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) answer() error {
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, x.s.opts.MaxBody))
	x.q = newRequest(x.r, x.rec.Seq, body)
	x.s.log.update(x.rec, func(rec *Record) {
		rec.BodySHA256, rec.BodyLen = x.q.hash, int64(len(body))
		if x.s.opts.KeepBodies {
			rec.Body = body
		}
	})
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return invalid("", "", "Request body is too large.").with(http.StatusRequestEntityTooLarge)
	}
	if err != nil {
		return err
	}
	if err := x.authorize(); err != nil {
		return err
	}
	return x.route()
}

func (x *exchange) authorize() error {
	if x.claude {
		return x.authorizeClaude()
	}
	key := x.key()
	if x.s.opts.Key != "" && (key != x.s.opts.Key || len(x.r.Header.Values("Authorization")) != 1) {
		return badKey(key)
	}
	return nil
}

// handler answers a request, or returns an error to reject it.
type handler func(x *exchange) error

// posts are the endpoints with a fixed path and method POST. Their files add them.
var posts = map[string]handler{}

// post adds an endpoint.
func post(path string, h handler) handler {
	posts[path] = h
	return h
}

func (x *exchange) route() error {
	if do := routeThing(x); do != nil {
		return do(x)
	}
	path, method := x.r.URL.Path, http.MethodGet
	var handle handler
	switch {
	case posts[path] != nil:
		method, handle = http.MethodPost, posts[path]
	case path == "/v1/responses" || strings.HasPrefix(path, "/v1/responses/"):
		method, handle = routeResponses(x)
	case path == "/v1/files" || strings.HasPrefix(path, "/v1/files/"):
		method, handle = routeFiles(x)
	case path == "/v1/batches" || strings.HasPrefix(path, "/v1/batches/"):
		method, handle = routeBatches(x)
	case path == messageBatches || strings.HasPrefix(path, messageBatches+"/"):
		method, handle = routeMessageBatches(x)
	case path == "/v1/models":
		handle = listModels
	case strings.HasPrefix(path, "/v1/models/"):
		handle = showModel
	default:
		return notFound(x.r)
	}
	if x.r.Method != method {
		return invalid("", "method_not_supported",
			"Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)", x.r.Method, path).
			with(http.StatusMethodNotAllowed)
	}
	return handle(x)
}

// key returns the caller's key.
func (x *exchange) key() string {
	key, _ := strings.CutPrefix(x.r.Header.Get("Authorization"), "Bearer ")
	if x.claude {
		return cmp.Or(x.r.Header.Get("X-Api-Key"), key)
	}
	return key
}

// admit parses the request, determines its behavior and counts it against the quota.
func (x *exchange) admit(read func() error) error {
	if err := x.q.open(); err != nil {
		return err
	}
	if !x.s.knows(x.q.Model) {
		return noModel(x.q.Model)
	}
	if err := read(); err != nil {
		return err
	}
	x.s.log.update(x.rec, func(rec *Record) {
		rec.Model = x.q.Model
		rec.Stream = x.q.Stream
		rec.Requested = x.q.Requested
	})
	err := x.meter()
	if err != nil {
		return err
	}
	x.b, err = x.s.behaviour(x.q)
	if err != nil {
		return invalid("", "fake_directive", "%v", err)
	}
	return nil
}

// meter counts the request against the quota.
func (x *exchange) meter() error {
	if strings.HasSuffix(x.r.URL.Path, "/count_tokens") {
		return nil
	}
	v := x.s.quotas.of(x.key()).admit(x.s.now(), x.q.Requested)
	if x.claude {
		return v.claude(x)
	}
	return v.openAI(x.w.Header(), x.q.Model)
}

// opening does what comes before a response: delay, reset, scripted error. done reports that
// the request has been answered.
func (x *exchange) opening() (done bool) {
	if !x.s.sleep(x.ctx, x.b.Delay) {
		x.abandon()
		return true
	}
	if x.b.Cut == CutHeaders {
		x.reset()
		return true
	}
	maps.Copy(x.w.Header(), x.b.Header)
	if x.b.Status == 0 {
		return false
	}
	if x.b.RetryAfter != "" {
		x.w.Header().Set("Retry-After", x.b.RetryAfter)
	}
	body, contentType := x.errorBody()
	x.outcome(Scripted)
	x.write(x.b.Status, contentType, body)
	return true
}

// headers sets what every response of the provider has, including headers that a proxy must not pass
// on.
func (x *exchange) headers() {
	h := x.w.Header()
	x.id = newID("req_")
	if x.claude {
		h.Set("Request-Id", x.id)
		h.Set("Anthropic-Organization-Id", "org-fake")
	} else {
		h.Set("X-Request-Id", x.id)
		h.Set("Openai-Version", "2020-10-01")
		h.Set("Openai-Organization", "org-fake")
		h.Set("Openai-Project", "proj_fake")
	}
	h.Set("Set-Cookie", "__cf_bm=fake; path=/; HttpOnly; Secure; SameSite=None")
	h.Set("Server", "fakeprovider")
	x.s.log.update(x.rec, func(rec *Record) { rec.RequestID = x.id })
}

func (x *exchange) refuse(e *apiError) {
	x.outcome(e.outcome)
	x.write(e.status, "application/json", x.errorJSON(e))
}

// begin sends the status line and the processing time.
func (x *exchange) begin(status int, contentType string) {
	x.w.Header().Set("Content-Type", contentType)
	if !x.claude {
		x.w.Header().Set("Openai-Processing-Ms", strconv.FormatInt(time.Since(x.start).Milliseconds(), 10))
	}
	x.s.log.update(x.rec, func(rec *Record) { rec.Status = status })
	x.w.WriteHeader(status)
}

// write sends a complete response.
func (x *exchange) write(status int, contentType string, body []byte) {
	x.s.log.update(x.rec, (*Record).last)
	if x.b.Gzip && strings.Contains(x.r.Header.Get("Accept-Encoding"), "gzip") {
		x.w.Header().Set("Content-Encoding", "gzip")
		x.begin(status, contentType)
		zip := gzip.NewWriter(x.w)
		_, _ = zip.Write(body)
		_ = zip.Close()
		return
	}
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.begin(status, contentType)
	_, _ = x.w.Write(body)
}

func (x *exchange) outcome(o Outcome) {
	x.s.log.update(x.rec, func(rec *Record) { rec.Outcome = o })
}

// used records what the call has consumed so far.
func (x *exchange) used(u Usage) {
	x.s.log.update(x.rec, func(rec *Record) { rec.Usage = u })
}

// abandon ends a response when the client is gone or the server closes.
func (x *exchange) abandon() {
	if x.s.closed.Err() != nil {
		x.outcome(WasCut)
		panic(http.ErrAbortHandler)
	}
	x.outcome(ClientGone)
}

// reset resets the TCP connection.
func (x *exchange) reset() {
	x.outcome(WasCut)
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
