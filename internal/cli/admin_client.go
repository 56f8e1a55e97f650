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
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
)

// adminFlags say where the administrators' API is, and how to print.
type adminFlags struct {
	path, url, key, caFile, output, reason string
}

const adminHelp = "With an administrator's key (--admin-key or LLMGUARD_ADMIN_KEY) it asks the admin listener of a running llmguard.\n" +
	"Without one it needs the configuration file and works on its Redis itself; the audit then names the user of this machine."

// add gives a command the flags. The values that come from the environment are
// never shown as defaults, because one is a secret.
func (f *adminFlags) add(c *cobra.Command, formats ...string) {
	p := c.Flags()
	p.StringVarP(&f.path, "config", "c", "llmguard.yaml", "the configuration file, when no administrator's key is given")
	p.StringVar(&f.url, "admin-url", "", "the admin listener (default: LLMGUARD_ADMIN_URL, or http://127.0.0.1:9090)")
	p.StringVar(&f.key, "admin-key", "", "an administrator's key (default: LLMGUARD_ADMIN_KEY)")
	caFlag(p, &f.caFile)
	f.output = "table"
	if len(formats) == 0 {
		return
	}
	p.StringVarP(&f.output, "output", "o", formats[0], strings.Join(formats, ", "))
	c.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, f.output) {
			return fmt.Errorf("--output %s: expected one of %s", f.output, strings.Join(formats, ", "))
		}
		return nil
	}
}

// why gives a command that changes something --reason.
func (f *adminFlags) why(c *cobra.Command) {
	c.Flags().StringVar(&f.reason, "reason", "", "why; one line, kept in the audit")
}

// adminClient asks the API, over the network or in this process.
type adminClient struct {
	do     func(*http.Request) (*http.Response, error)
	base   string
	key    string
	reason string
	close  func()
}

// open finds the API.
func (f *adminFlags) open(ctx context.Context) (*adminClient, error) {
	key, at := cmp.Or(f.key, os.Getenv("LLMGUARD_ADMIN_KEY")), cmp.Or(f.url, os.Getenv("LLMGUARD_ADMIN_URL"))
	if key == "" && at != "" && f.url != "" {
		return nil, errors.New("--admin-url needs an administrator's key: --admin-key or LLMGUARD_ADMIN_KEY (`llmguard admins create` makes one)")
	}
	if key != "" {
		u, err := url.Parse(cmp.Or(at, "http://127.0.0.1:9090"))
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("--admin-url %s: expected a URL such as http://127.0.0.1:9090", at)
		}
		client, err := client(f.caFile, time.Minute)
		if err != nil {
			return nil, err
		}
		return &adminClient{do: client.Do, base: strings.TrimRight(u.String(), "/"), key: key, reason: f.reason, close: client.CloseIdleConnections}, nil
	}
	return f.openLocal(ctx)
}

// openLocal runs the API in this process, on the configuration's Redis.
func (f *adminFlags) openLocal(ctx context.Context) (*adminClient, error) {
	cfg, err := config.Load(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no configuration file %s: name yours with --config, or set LLMGUARD_ADMIN_KEY to ask a running llmguard", f.path)
	}
	if err != nil {
		return nil, err
	}
	if !cfg.Redis.Configured() {
		return nil, app.ErrNoStore
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return nil, err
	}
	client, err := localClient(ctx, cfg, rdb)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	client.reason, client.close = f.reason, func() { _ = rdb.Close() }
	return client, nil
}

// localClient asks the API in this process, as the user of this machine.
func localClient(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient) (*adminClient, error) {
	api, err := front.Admin(ctx, cfg, rdb, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	local := api.As((&who{}).name())
	do := func(r *http.Request) (*http.Response, error) {
		w := &localAnswer{header: http.Header{}, status: http.StatusOK}
		local.ServeHTTP(w, r)
		return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r}, nil
	}
	return &adminClient{do: do, base: "http://localhost", close: func() {}}, nil
}

// localAnswer keeps what a handler in this process writes.
type localAnswer struct {
	header http.Header
	status int
	begun  bool
	body   bytes.Buffer
}

func (w *localAnswer) Header() http.Header { return w.header }

func (w *localAnswer) WriteHeader(status int) {
	if !w.begun {
		w.status, w.begun = status, true
	}
}

func (w *localAnswer) Write(p []byte) (int, error) {
	w.begun = true
	return w.body.Write(p)
}

// ask sends a request and decodes the answer into out, unless it is nil.
func (a *adminClient) ask(ctx context.Context, method, path string, body, out any) error {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
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
	r, err := http.NewRequestWithContext(ctx, method, a.base+"/admin/v1"+path, in)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		r.Header.Set("Authorization", "Bearer "+a.key)
	}
	resp, err := a.do(r)
	if err != nil {
		return fmt.Errorf("the admin listener cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return refusedBy(resp.StatusCode, text)
	}
	if out == nil || len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, out)
}

// refusedBy words a refusal of the API.
func refusedBy(status int, text []byte) error {
	var e struct {
		Error struct {
			Message string `json:"message"`
			Param   string `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &e) != nil || e.Error.Message == "" {
		return fmt.Errorf("the admin listener answers %d %s; is that llmguard's?", status, http.StatusText(status))
	}
	return errors.New(e.Error.Message)
}

// run is what every command on the API does.
func (f *adminFlags) run(c *cobra.Command, do func(*adminClient) error) error {
	a, err := f.open(c.Context())
	if err != nil {
		return err
	}
	defer a.close()
	return do(a)
}

// pathOf joins parts of a path, each escaped.
func pathOf(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}
