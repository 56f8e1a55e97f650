package e2e

import (
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// consoleStack is a deployment with a full administrator and a read-only one.
func consoleStack(t *testing.T) (s *stack, admin, reader string) {
	t.Helper()
	s = newStack(t, fakeprovider.Options{}, simple("[{name: slow, subject: user, amount: $0.0006, window: 1h}]"))
	admin, reader = keys.New(keys.Admin), keys.New(keys.Admin)
	s.replace(`admin: {listen: "127.0.0.1:0"}`, `admin: {listen: "127.0.0.1:0", keys: [{id: ops, hash: "`+keys.Hash(keys.Pepper{}, admin)+
		`"}, {id: audit, read_only: true, hash: "`+keys.Hash(keys.Pepper{}, reader)+`"}]}`)
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	return s, admin, reader
}

// browser is a client that keeps cookies and reads pages as text.
type browser struct {
	t    *testing.T
	base string
	http.Client
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, base: base, Client: http.Client{Jar: jar, Timeout: time.Minute}}
}

func (b *browser) read(resp *http.Response, err error) (int, string, http.Header) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

func (b *browser) page(path string) (int, string) {
	b.t.Helper()
	resp, err := b.Get(b.base + path)
	status, text, _ := b.read(resp, err)
	return status, text
}

func (b *browser) submit(path string, form url.Values) (int, string) {
	b.t.Helper()
	resp, err := b.PostForm(b.base+path, form)
	status, text, _ := b.read(resp, err)
	return status, text
}

func (b *browser) signIn(key string) {
	b.t.Helper()
	if status, text := b.submit("/console/login", url.Values{"key": {key}}); status != 200 || !strings.Contains(text, "Sign out") {
		b.t.Fatalf("signing in: status %d: %.400s", status, text)
	}
}

var formToken = regexp.MustCompile(`name="token" value="([^"]+)"`)

// act performs an action through its two forms; the first only asks for confirmation.
func (b *browser) act(page, action string, form url.Values) (int, string) {
	b.t.Helper()
	_, text := b.page(page)
	m := formToken.FindStringSubmatch(text)
	if m == nil {
		b.t.Fatalf("no form on %s: %.300s", page, text)
	}
	form = maps.Clone(form)
	form.Set("token", m[1])
	form.Set("back", page)
	status, text := b.submit("/console/act/"+action, form)
	if status != 200 || !strings.Contains(text, `name="confirm"`) {
		b.t.Fatalf("%s is not asked back: status %d: %.300s", action, status, text)
	}
	form.Set("confirm", "yes")
	return b.submit("/console/act/"+action, form)
}

// TestConsole uses the console like an administrator, without JavaScript: nothing is shown
// without a key, and changes are confirmed and take effect.
func TestConsole(t *testing.T) {
	t.Parallel()
	s, admin, reader := consoleStack(t)
	p := s.proxy()
	s.worker()
	if a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", oneCall)); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	s.settled("acme", 1)
	waits := submit(t, func() string { return p.URL }, s.keys["alice"], chat("gpt-4o", "hi", oneCall))

	stranger := newBrowser(t, p.Admin)
	for _, path := range []string{"/", "/console/", "/console/orgs/acme", "/console/jobs", "/console/nothing"} {
		if status, text := stranger.page(path); strings.Contains(text, "acme") && !strings.Contains(path, "acme") || strings.Contains(text, "alice") || status >= 500 {
			t.Errorf("%s tells a stranger something: status %d: %.300s", path, status, text)
		}
	}
	for _, wrong := range []string{"", "nonsense", s.keys["alice"], keys.New(keys.Admin)} {
		if status, text := stranger.submit("/console/login", url.Values{"key": {wrong}}); status != http.StatusUnauthorized || strings.Contains(text, "Sign out") {
			t.Errorf("the key %.9q: status %d: %.300s", wrong, status, text)
		}
	}

	b := newBrowser(t, p.Admin)
	b.signIn(admin)
	for path, want := range map[string]string{
		"/console/": "acme", "/console/orgs/acme": "alice", "/console/orgs/acme/users/alice": "k1", "/console/queue": "openai",
		"/console/jobs?org=acme": waits.ID, "/console/jobs/acme/" + waits.ID: "gpt-4o", "/console/batches": "files.store", "/console/audit": "admin.sign_in",
	} {
		resp, err := b.Get(p.Admin + path)
		status, text, header := b.read(resp, err)
		if status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: status %d, without %q: %.300s", path, status, want, text)
		}
		if csp := header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: content security policy %q", path, csp)
		}
		if strings.Contains(text, " style=") || strings.Contains(text, "onclick") || strings.Contains(text, "<script>") {
			t.Errorf("%s has what the policy forbids", path)
		}
	}
	for _, path := range []string{"/console/orgs/other", "/console/orgs/acme/users/nobody", "/console/jobs/acme/job_nothing"} {
		if status, _ := b.page(path); status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, status)
		}
	}

	job := url.Values{"org": {"acme"}, "job": {waits.ID}}
	forged := url.Values{"org": {"acme"}, "job": {waits.ID}, "confirm": {"yes"}, "token": {"guessed"}}
	if status, _ := b.submit("/console/act/cancel-job", forged); status != http.StatusForbidden {
		t.Errorf("a form without its token: status %d", status)
	}
	looker := newBrowser(t, p.Admin)
	looker.signIn(reader)
	if status, text := looker.act("/console/jobs/acme/"+waits.ID, "cancel-job", job); status != http.StatusForbidden || !strings.Contains(text, "is read-only") {
		t.Errorf("a reader cancels: status %d: %.300s", status, text)
	}
	// If the worker is trying the job right now, the job is running and ends after the attempt.
	if status, text := b.act("/console/jobs/acme/"+waits.ID, "cancel-job", job); status != 200 || !strings.Contains(text, "Job "+waits.ID+" is ") {
		t.Errorf("cancelling: status %d: %.300s", status, text)
	}
	if j := awaitJob(t, p.URL, s.keys["alice"], waits.ID, time.Minute); j.Status != "cancelled" {
		t.Errorf("the job is %s", j.Status)
	}
	b.raise()
	b.keys(s, p)
}

// raise gives alice a higher limit for an hour, and takes it back.
func (b *browser) raise() {
	t := b.t
	t.Helper()
	user := "/console/orgs/acme/users/alice"
	form := url.Values{"org": {"acme"}, "user": {"alice"}, "limit": {"slow"}, "add": {"$200"}, "until": {"1 hour"}, "reason": {"demo"}}
	if status, text := b.act(user, "raise-limit", form); status != 200 || !strings.Contains(text, "+$200.00") {
		t.Fatalf("raising: status %d: %s", status, text)
	}
	_, text := b.page(user)
	m := regexp.MustCompile(`name="override" value="([^"]+)"`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the change is not shown: %s", text)
	}
	if status, text := b.act(user, "end-override", url.Values{"org": {"acme"}, "override": {m[1]}}); status != 200 || strings.Contains(text, "+$200.00") {
		t.Errorf("ending it: status %d: %s", status, text)
	}
}

// keys creates a key, makes a call with it, and disables it.
func (b *browser) keys(s *stack, p *process) {
	t := b.t
	t.Helper()
	user := "/console/orgs/acme/users/alice"
	status, text := b.act(user, "create-key", url.Values{"org": {"acme"}, "user": {"alice"}, "name": {"ci"}})
	m := regexp.MustCompile(`id="secret">([^<]+)<`).FindStringSubmatch(text)
	if status != 200 || m == nil {
		t.Fatalf("making a key: status %d: %.400s", status, text)
	}
	if _, again := b.page(user); strings.Contains(again, m[1]) {
		t.Error("the key is shown twice")
	}
	models := func(want int) {
		t.Helper()
		var a answer
		for range 300 {
			if a = get(p.URL+"/models", m[1]); a.status == want {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("with the key: status %d, want %d: %s", a.status, want, a.body)
	}
	models(200)
	id := regexp.MustCompile(`Key (\S+) created`).FindStringSubmatch(text)
	if id == nil {
		t.Fatalf("the new key's id is not told: %.400s", text)
	}
	if status, text := b.act(user, "disable-key", url.Values{"org": {"acme"}, "key": {id[1]}, "reason": {"lost laptop"}}); status != 200 || !strings.Contains(text, "is disabled") {
		t.Errorf("disabling: status %d: %.300s", status, text)
	}
	models(401)
	if _, text := b.page("/console/audit"); !strings.Contains(text, "lost laptop") || !strings.Contains(text, "ops") {
		t.Errorf("the audit does not say who and why: %.600s", text)
	}
}

// TestConsoleInChromium uses the console in a real browser, by keyboard, at two widths: charts
// are drawn, the content security policy blocks nothing, and nothing overflows.
func TestConsoleInChromium(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed (Debian: apt-get install chromium): the console is not tried in a browser")
	}
	s, admin, _ := consoleStack(t)
	p := s.proxy()
	if a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", oneCall)); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	s.settled("acme", 1)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))
	alloc, stop := chromedp.NewExecAllocator(t.Context(), options...)
	defer stop()
	ctx, end := chromedp.NewContext(alloc)
	defer end()
	const faults = `window.faults = []; addEventListener('error', (e) => faults.push(e.message));
		addEventListener('securitypolicyviolation', (e) => faults.push(e.violatedDirective + ' ' + e.blockedURI)); true`
	run := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		for _, step := range steps {
			if _, err := chromedp.Run(ctx, step); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(what, script string) {
		t.Helper()
		for range 300 {
			if good, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err == nil && good { // during a page load
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s: %s", what, script)
	}
	run(chromedp.Navigate(p.Admin+"/console/orgs/acme"), chromedp.WaitVisible("#key"), chromedp.SendKeys("#key", admin+"\r"),
		chromedp.WaitVisible(".stack svg"))
	check("the browser goes on to where it wanted", `location.pathname === '/console/orgs/acme'`)
	for _, width := range []int64{400, 1600} {
		run(chromedp.EmulateViewport(width, 900))
		for key, path := range map[string]string{"o": "/console/", "q": "/console/queue", "j": "/console/jobs", "b": "/console/batches", "a": "/console/audit"} {
			run(chromedp.Evaluate[chromedp.Void](faults), chromedp.KeyEvent("g"), chromedp.KeyEvent(key))
			check("g "+key, `location.pathname === '`+path+`' && document.readyState === 'complete'`)
			check("nothing overflows at this width", `document.documentElement.scrollWidth <= innerWidth`)
			check("no faults", `(window.faults ?? []).length === 0`)
		}
	}
	run(chromedp.KeyEvent("?"))
	check("help opens", `document.getElementById('help').open`)
	run(chromedp.KeyEvent("\u001b"))
	check("help closes", `!document.getElementById('help').open`)
	run(chromedp.KeyEvent("t"))
	check("the theme changes", `['dark', 'light'].includes(document.documentElement.dataset.theme)`)
	run(chromedp.Navigate(p.Admin+"/console/orgs/acme"), chromedp.WaitVisible(".stack svg"))
	check("the chart's figures are a table too", `document.querySelectorAll('#by-day-rows tr').length === 30`)
	run(chromedp.KeyEvent("/"))
	check("the search has the focus", `document.activeElement.id === 'q'`)
}
