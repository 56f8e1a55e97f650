package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

type adminFlags struct {
	path, url, key, caFile, output, reason string

	command *cobra.Command // the command the flags belong to
}

const adminHelp = "It connects to the admin listener of a running llmguard, named by the context (see `llmguard context`) or by\n" +
	"LLMGUARD_ADMIN_URL and LLMGUARD_ADMIN_KEY. With --config it connects to the Redis in that file directly; the audit then\n" +
	"records your OS user."

// add registers the flags on a command. Values from the environment are never shown as
// defaults, because one of them is a secret.
func (f *adminFlags) add(c *cobra.Command, formats ...string) {
	p := c.Flags()
	f.command = c
	p.StringVarP(&f.path, "config", "c", "llmguard.yaml", "the configuration file, to connect to its Redis directly")
	p.StringVar(&f.url, "admin-url", "",
		"the admin listener (default: LLMGUARD_ADMIN_URL, the context's, or http://127.0.0.1:9090)")
	p.StringVar(&f.key, "admin-key", "", "an administrator's key (default: LLMGUARD_ADMIN_KEY, or the context's)")
	caFlag(p, &f.caFile)
	f.output = "table"
	if len(formats) > 0 {
		formatFlag(c, &f.output, formats...)
	}
}

// why adds --reason to a command that changes something.
func (f *adminFlags) why(c *cobra.Command, required bool) {
	help := "the reason, one line, recorded in the audit"
	if required {
		help += " (required)"
	}
	c.Flags().StringVar(&f.reason, "reason", "", help)
}

// adminClient calls the admin API, over the network or in this process.
type adminClient struct {
	do     func(*http.Request) (*http.Response, error)
	base   string
	root   string // of its paths; "": /admin/v1
	key    string
	reason string
	sure   func(method string) error // refuses a request if its target is in doubt; nil: never
	close  func()

	deployment string
	notes      io.Writer // where the deployment is named before the first change; nil: nowhere, or done
}

func (f *adminFlags) open(ctx context.Context) (*adminClient, error) {
	to, err := f.target()
	switch {
	case err != nil:
		return nil, err
	case to == nil:
		return f.openLocal(ctx)
	}
	client, err := client(cmp.Or(f.caFile, to.CAFile), 0)
	if err != nil {
		return nil, err
	}
	return &adminClient{
		do: client.Do, base: strings.TrimRight(to.URL, "/"), key: to.Key, reason: f.reason,
		sure: to.sure(ctx, f), deployment: to.deployment(), close: client.CloseIdleConnections,
	}, nil
}

// target returns the llmguard to call, or nil for the one of the configuration file, run in
// this process. Flags take precedence over the environment, and the environment over contexts.
func (f *adminFlags) target() (*reached, error) {
	named, _ := f.command.Flags().GetString("context")
	flags, file := f.url+f.key != "", f.command.Flags().Changed("config")
	url, key := os.Getenv("LLMGUARD_ADMIN_URL"), os.Getenv("LLMGUARD_ADMIN_KEY")
	if !file && named == "" && (f.url == "" || f.key == "") {
		if err := knownVariables(); err != nil {
			return nil, err
		}
	}
	switch {
	case file && (flags || named != ""):
		return nil, misused("--config connects to the Redis in the file; leave it out to use a running llmguard")
	case file:
		return nil, nil
	case flags || named == "" && url+key != "":
		return reached{URL: cmp.Or(f.url, url), Key: cmp.Or(f.key, key), from: "--admin-url or LLMGUARD_ADMIN_URL"}.usable()
	}
	all, err := readContexts()
	if err != nil {
		return nil, err
	}
	named = cmp.Or(named, os.Getenv("LLMGUARD_CONTEXT"))
	if named == "" && all.Current == "" {
		return nil, nil
	}
	to, err := all.find(cmp.Or(named, all.Current))
	if err != nil {
		return nil, err
	}
	to.from = "the context of that name"
	if named == "" {
		to.from = currentContext
	}
	return to.usable()
}

// variables are what commands read from the environment.
var variables = []string{"LLMGUARD_ADMIN_KEY", "LLMGUARD_ADMIN_URL", "LLMGUARD_CA_FILE", "LLMGUARD_CONTEXT"}

// knownVariables reports a mistyped variable, without which a command could reach another deployment.
func knownVariables() error {
	for _, one := range os.Environ() {
		name, _, _ := strings.Cut(one, "=")
		near := settings.Near(name, variables)
		if len(near) > 0 && os.Getenv(near[0]) == "" && near[0] != name && settings.Close(name, near[0]) {
			return misused("llmguard does not read the environment variable %s; did you mean %s? If not, unset it",
				name, near[0])
		}
	}
	return nil
}

// usable validates the address and the key.
func (to reached) usable() (*reached, error) {
	if to.Key == "" {
		return nil, errors.New("LLMGUARD_ADMIN_URL or --admin-url needs an administrator's key: set --admin-key or " +
			"LLMGUARD_ADMIN_KEY (create one with `llmguard admins create`)")
	}
	to.URL = strings.TrimSuffix(strings.TrimRight(cmp.Or(to.URL, "http://127.0.0.1:9090"), "/"), "/admin/v1")
	if u, err := url.Parse(to.URL); err != nil || u.Host == "" {
		return nil, fmt.Errorf("--admin-url %s: expected a URL with a scheme, such as http://127.0.0.1:9090", to.URL)
	}
	if strings.ContainsFunc(to.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the administrator's key (--admin-key, LLMGUARD_ADMIN_KEY) has a space, a line break or " +
			"another invalid character")
	}
	return &to, nil
}

// openLocal runs the API in this process, on the configuration's Redis, as the OS user.
func (f *adminFlags) openLocal(ctx context.Context) (*adminClient, error) {
	api, end, err := f.localAPI(ctx)
	if err != nil {
		return nil, err
	}
	do := inProcess(api.As(osUser())) //nolint:bodyclose // whoever sends a request closes the body
	return &adminClient{
		do: do, base: "http://localhost", reason: f.reason, close: end,
		deployment: "of " + f.path + ", directly in its Redis",
	}, nil
}

// localAPI opens the API of the configuration's Redis in this process.
func (f *adminFlags) localAPI(ctx context.Context) (api *admin.Server, end func(), err error) {
	cfg, err := f.config()
	if err != nil {
		return nil, nil, err
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return nil, nil, err
	}
	api, err = front.Admin(ctx, cfg, rdb, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return api, func() { _ = rdb.Close() }, nil
}

// config loads the configuration file for commands that use its Redis directly.
func (f *adminFlags) config() (*config.Config, error) {
	cfg, err := config.LoadOperator(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s not found. Use --config FILE, set LLMGUARD_ADMIN_KEY, or add a context with "+
			"`llmguard context add`", f.path)
	}
	if err != nil {
		return nil, err
	}
	if !cfg.Redis.Configured() {
		return nil, app.ErrNoStore
	}
	return cfg, nil
}

// inProcess sends requests to a handler of this process.
func inProcess(local http.Handler) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		body, into := io.Pipe()
		w := &localAnswer{header: http.Header{}, begun: make(chan struct{}), body: into}
		go func() {
			defer func() {
				if aborted := recover(); aborted != nil && aborted != http.ErrAbortHandler { //nolint:errorlint // never wrapped
					panic(aborted)
				}
				into.CloseWithError(io.ErrUnexpectedEOF) // without effect after Close
			}()
			local.ServeHTTP(w, r)
			w.WriteHeader(http.StatusOK)
			into.Close()
		}()
		<-w.begun
		return &http.Response{StatusCode: w.status, Header: w.header, Body: body, Request: r}, nil
	}
}

// osUser returns who runs this program, and where.
func osUser() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// localAnswer is the http.ResponseWriter for handlers that run in this process; the body can be
// read while it is written.
type localAnswer struct {
	header http.Header
	status int
	begun  chan struct{} // closed when header and status are final
	body   *io.PipeWriter
}

func (w *localAnswer) Header() http.Header { return w.header }

func (w *localAnswer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		close(w.begun)
	}
}

func (w *localAnswer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// askTime limits a request whose response is not streamed.
const askTime = time.Minute

// ask sends a request and decodes the answer into out, unless it is nil.
func (a *adminClient) ask(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	resp, err := a.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return decodeAnswer(resp.Body, out)
}

// get fetches what the API has at a path.
func get[T any](ctx context.Context, a *adminClient, path string) (T, error) {
	var answer T
	err := a.ask(ctx, http.MethodGet, path, nil, &answer)
	return answer, err
}

// lists is a list of the API, or a page of one.
type lists[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

// list fetches the lines of a list of the API.
func list[T any](ctx context.Context, a *adminClient, path string) ([]T, error) {
	answer, err := get[lists[T]](ctx, a, path)
	return answer.Data, err
}

// decodeAnswer reads an answer into out, unless it is nil.
func decodeAnswer(body io.Reader, out any) error {
	text, err := io.ReadAll(io.LimitReader(body, 64<<20))
	if err != nil {
		return err
	}
	if out == nil || len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, out)
}

// lines calls fn with each line of a stream of JSON.
func (a *adminClient) lines(ctx context.Context, path string, fn func(json.RawMessage) error) error {
	resp, err := a.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var line json.RawMessage
		switch err := d.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the response was cut off: %w", err)
		case bytes.HasPrefix(line, []byte(`{"error":{`)):
			return refusedBy(resp.StatusCode, line)
		}
		switch err := fn(line); {
		case errors.Is(err, ledger.ErrEnough):
			return nil
		case err != nil:
			return err
		}
	}
}

// send sends a request and returns an error if the API refuses it.
func (a *adminClient) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	if a.sure != nil {
		if err := a.sure(method); err != nil {
			return nil, err
		}
	}
	if a.notes != nil && method != http.MethodGet {
		fmt.Fprintln(a.notes, "llmguard: deployment "+a.deployment)
		a.notes = nil
	}
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(raw)
	}
	if a.reason != "" && method != http.MethodGet {
		mark := "?"
		if strings.Contains(path, "?") {
			mark = "&"
		}
		path += mark + "reason=" + url.QueryEscape(a.reason)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.base+cmp.Or(a.root, "/admin/v1")+path, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		r.Header.Set("Authorization", "Bearer "+a.key)
	}
	resp, err := a.do(r)
	if err != nil {
		if a.root != "" {
			return nil, fmt.Errorf("cannot reach llmguard: %w", err)
		}
		return nil, fmt.Errorf("cannot reach the admin listener: %w. Compare %s with admin.listen and admin.tls of the "+
			"configuration, and check that llmguard runs", err, a.base)
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	return nil, refusedBy(resp.StatusCode, text)
}

func refusedBy(status int, text []byte) error {
	var e struct {
		Error struct {
			Message string `json:"message"`
			Param   string `json:"param"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(text, &e) // an answer of another server has no message
	if strings.HasPrefix(e.Error.Message, "Unknown request URL: ") {
		return errors.New("this is the listener for callers; use the admin listener, admin.listen of the configuration")
	}
	if e.Error.Message == "" {
		return fmt.Errorf("the admin listener returned %d %s; is this llmguard?", status, http.StatusText(status))
	}
	return &refusal{forShell(e.Error.Message), e.Error.Param, e.Error.Code, text}
}

// refusal is an error response of the API, with its whole body.
type refusal struct {
	message string
	param   string // the invalid field or argument; empty if unknown
	code    string // explained by docs/errors.md; may be empty
	answer  []byte
}

func (r *refusal) Error() string { return r.message }

// run opens the API and calls do; every command that uses the API goes through it.
func (f *adminFlags) run(c *cobra.Command, do func(*adminClient) error) error {
	a, err := f.open(c.Context())
	if err != nil {
		return err
	}
	defer a.close()
	a.notes = c.ErrOrStderr()
	return do(a)
}

func pathOf(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// local runs a command on the Redis of the configuration, whatever the environment says.
func (f *adminFlags) local(c *cobra.Command, do func(*adminClient) error) error {
	const there = "`%s` needs the configuration file and direct access to Redis, and does not work over the network; run it with " +
		"--config"
	if named, _ := c.Flags().GetString("context"); named != "" || f.url+f.key != "" {
		return fmt.Errorf(there, c.CommandPath())
	}
	if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s not found. "+there, f.path, c.CommandPath())
	}
	a, err := f.openLocal(c.Context())
	if err != nil {
		return err
	}
	defer a.close()
	a.notes = c.ErrOrStderr()
	return do(a)
}
