package world

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// browser is signed in to the console.
type browser struct {
	http.Client
	site string
}

// signIn opens the console with the key of the administrator ops.
func (w *World) signIn() (*browser, error) {
	if w.browser != nil {
		return w.browser, nil
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	b := &browser{http.Client{Jar: jar, Timeout: redistest.Bound}, w.Proxy.Admin}
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	status, text, err := b.send(http.MethodPost, "/console/login", url.Values{"key": {w.Keys["ops"]}})
	if err == nil && status != http.StatusSeeOther {
		err = fmt.Errorf("signing in: %d %s", status, Text(text))
	}
	if err == nil {
		w.browser = b
	}
	return b, err
}

// signOut ends the session in the console.
func (w *World) signOut() error {
	b, err := w.signIn()
	if err != nil {
		return err
	}
	w.browser = nil
	return b.post("/console/logout", url.Values{})
}

func (b *browser) send(method, path string, form url.Values) (status int, text string, err error) {
	req, err := http.NewRequest(method, b.site+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// page returns the HTML of a page, once its figures are complete.
func (b *browser) page(path string) (string, error) {
	for range attempts {
		status, text, err := b.send(http.MethodGet, path, nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d\n%s", status, Text(text))
		}
		if err != nil || !strings.Contains(text, "being read") {
			return text, err
		}
		time.Sleep(pause)
	}
	return "", errors.New("its figures are never complete")
}

var token = regexp.MustCompile(`name="token" value="([^"]+)"`)

// post sends a form with the session's token.
func (b *browser) post(path string, form url.Values) error {
	text, err := b.page("/console/audit")
	if err != nil {
		return err
	}
	m := token.FindStringSubmatch(text)
	if m == nil {
		return errors.New("a page without a form")
	}
	form.Set("token", m[1])
	status, text, err := b.send(http.MethodPost, path, form)
	if err != nil || status == http.StatusSeeOther {
		return err
	}
	return &notDone{status, Text(text)}
}

// notDone is a page that a form led to, in place of the page before.
type notDone struct {
	status int
	text   string
}

func (e *notDone) Error() string { return fmt.Sprintf("%d\n%s", e.status, e.text) }

// press submits the form of an action, reads what it asks, and confirms. It returns the question and the page after.
func (b *browser) press(name string, form url.Values) (asked, after string, err error) {
	form.Set("back", "/console/audit")
	var question *notDone
	err = b.post("/console/act/"+name, form)
	if err == nil {
		err = errors.New("it was done without a question")
	}
	if !errors.As(err, &question) || question.status != http.StatusOK {
		return "", "", err
	}
	form.Set("confirm", "yes")
	err = b.post("/console/act/"+name, form)
	if err != nil {
		return question.text, "", err
	}
	text, err := b.page("/console/audit")
	return question.text, Text(text), err
}

var (
	hidden = regexp.MustCompile(`(?s)<(script|style|svg)\b.*?</(script|style|svg)>`)
	blocks = regexp.MustCompile(`(?i)</?(p|h\d|tr|li|dt|div|section|form|label|option|table|br)\b[^>]*>`)
	tags   = regexp.MustCompile(`<[^>]*>`)
)

// Text returns what a page says, without its tags and the navigation: one line for each paragraph and row.
func Text(page string) string {
	if _, rest, ok := strings.Cut(page, "<main"); ok {
		page, _, _ = strings.Cut("<main"+rest, "</main>")
	}
	page = strings.Join(strings.Fields(hidden.ReplaceAllString(page, " ")), " ")
	page = html.UnescapeString(tags.ReplaceAllString(blocks.ReplaceAllString(page, "\n"), " "))
	var out strings.Builder
	for line := range strings.Lines(page) {
		words := strings.Fields(line)
		if len(words) > 0 {
			out.WriteString(strings.Join(words, " ") + "\n")
		}
	}
	return out.String()
}
