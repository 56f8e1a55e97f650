package providers

import (
	"bytes"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
)

// Redacted replaces names of our account in a provider's errors.
const Redacted = "[redacted]"

// Redactor removes what identifies our account at a provider: the key, the organization, the
// project, deployments and the base URL. It is immutable.
type Redactor struct {
	names   []name
	keys    []string // to recognize them with their middle masked
	learned []string // the provider's own names of the account, in lower case
}

// name is a text to redact.
type name struct {
	text   string // in lower case
	inside bool   // even inside a longer word
}

// shortestName is the minimum length, in bytes, for a header's value or a part of a path to be
// treated as an account name. Shorter ones are ordinary words.
const shortestName = 8

func newRedactor(p *Provider) Redactor {
	var r Redactor
	r.key(p.APIKey)
	for header, values := range p.Headers {
		for _, v := range values {
			switch _, token, ok := strings.Cut(v, " "); {
			case slices.Contains(withheld, header):
				r.word(v)
			case ok && len(token) >= shortestName: // Bearer and similar schemes
				r.key(token)
			case len(v) >= shortestName:
				r.word(v)
			}
		}
	}
	r.place(p.BaseURL)
	for _, word := range p.Dialect.Names(p.account()) {
		r.word(word)
	}
	public := p.Names()
	for model := range p.Deployments {
		public = append(public, model)
	}
	for _, deployment := range p.Deployments {
		if !slices.Contains(public, deployment) {
			r.word(deployment)
		}
	}
	r.sort()
	return r
}

// place adds the provider's location: the URL, its host, and the parts of the path other than the
// API version.
func (r *Redactor) place(base *url.URL) {
	r.add(base.String(), true)
	r.add(base.Host, true)
	r.word(base.Hostname())
	for part := range strings.SplitSeq(base.Path, "/") {
		if len(part) >= shortestName && strings.ContainsAny(part, "0123456789") {
			r.word(part)
		}
	}
}

// with returns a redactor for an additional key.
func (r Redactor) with(key string) Redactor {
	own := Redactor{names: slices.Clone(r.names), keys: slices.Clone(r.keys)}
	own.key(key)
	own.sort()
	return own
}

func (r *Redactor) key(key string) {
	if key == "" {
		return
	}
	r.keys = append(r.keys, key)
	r.add(key, true)
}

func (r *Redactor) word(text string) { r.add(text, false) }

// add adds a text in all forms in which an error may contain it.
func (r *Redactor) add(text string, inside bool) {
	if len(text) < 2 {
		return
	}
	quoted, _ := json.Marshal(text) // cannot fail for a string
	inner := string(quoted[1 : len(quoted)-1])
	for _, form := range []string{
		text, inner, strings.ReplaceAll(inner, "/", `\/`), url.QueryEscape(text), url.PathEscape(text),
		html.EscapeString(text),
	} {
		one := name{lower(form), inside}
		if !slices.Contains(r.names, one) {
			r.names = append(r.names, one)
		}
	}
}

// sort sorts by length, longest first, so that a text that contains another is removed completely.
func (r *Redactor) sort() {
	slices.SortStableFunc(r.names, func(a, b name) int { return len(b.text) - len(a.text) })
}

// Patterns of OpenAI's account names, whether they are configured or not, and of keys with a masked
// middle.
var (
	given   = regexp.MustCompile(`\b(?:org-[A-Za-z0-9]{16,}|proj_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,})`)
	masked  = regexp.MustCompile(`[A-Za-z0-9_+/=-]*(?:\*{2,}|\.{3,}|[•…]+)[A-Za-z0-9_+/=*-]*`)
	literal = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

// Redact returns an error of the provider with all names of the account removed; it returns the
// text unchanged if there are none.
func (r Redactor) Redact(text string) string {
	if strings.IndexByte(text, '\\') >= 0 {
		text = literal.ReplaceAllStringFunc(text, r.unescaped)
	}
	folded := lower(text)
	for _, n := range r.names {
		if strings.Contains(folded, n.text) {
			text = n.cut(text, folded)
			folded = lower(text)
		}
	}
	for _, word := range r.learned {
		text = name{text: word}.cut(text, lower(text))
	}
	if strings.Contains(text, "org-") || strings.Contains(text, "proj_") || strings.Contains(text, "sk-") {
		text = given.ReplaceAllString(text, Redacted)
	}
	if strings.Contains(text, "**") || strings.Contains(text, "...") || strings.ContainsAny(text, "•…") {
		text = masked.ReplaceAllStringFunc(text, r.unmasked)
	}
	return text
}

// unescaped returns a JSON string in which escapes hide no name.
func (r Redactor) unescaped(quoted string) string {
	var plain string
	if strings.IndexByte(quoted, '\\') < 0 || json.Unmarshal([]byte(quoted), &plain) != nil {
		return quoted
	}
	clean := r.Redact(plain)
	if clean == plain {
		return quoted
	}
	again, _ := json.Marshal(clean) // cannot fail for a string
	return string(again)
}

// unmasked returns the word, unless it may be one of the keys with a masked middle.
func (r Redactor) unmasked(word string) string {
	begin := strings.IndexAny(word, "*.•…")
	head, tail := word[:begin], strings.TrimLeft(word[begin:], "*.•…")
	if head+tail != "" && slices.ContainsFunc(r.keys, func(key string) bool {
		return len(head)+len(tail) < len(key) && strings.HasPrefix(key, head) && strings.HasSuffix(key, tail)
	}) {
		return Redacted
	}
	return word
}

// cut replaces a name in a text; folded is the text in lower case.
func (n name) cut(text, folded string) string {
	var out strings.Builder
	for at := 0; ; {
		i := strings.Index(folded[at:], n.text)
		if i < 0 {
			out.WriteString(text[at:])
			return out.String()
		}
		from, to := at+i, at+i+len(n.text)
		out.WriteString(text[at:from])
		if n.inside || !inWord(folded, from-1) && !inWord(folded, to) {
			out.WriteString(Redacted)
		} else {
			out.WriteString(text[from:to])
		}
		at = to
	}
}

func inWord(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}

// lower returns the text with ASCII letters in lower case, without changing its length.
func lower(text string) string {
	if strings.IndexFunc(text, func(c rune) bool { return c >= 'A' && c <= 'Z' }) < 0 {
		return text
	}
	out := []byte(text)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return string(out)
}

// RedactorOf returns the Redactor of an answer returned by Send.
func RedactorOf(resp *http.Response) Redactor {
	if b, ok := resp.Body.(*namelessBody); ok {
		return b.redactor
	}
	return Redactor{}
}

// Failure returns a JSON answer with a success status unchanged, unless it reports a failure: then
// it is redacted. Generated text is not changed.
func (r Redactor) Failure(answer []byte) []byte {
	if !mentionsError(answer) || !wire.SaysError(answer) {
		return answer
	}
	return []byte(r.Redact(string(answer)))
}

// Event is Failure for one event of a stream, which may also be a comment or text.
func (r Redactor) Event(event []byte) []byte {
	head, data, found := bytes.Cut(event, []byte("data:"))
	data = bytes.TrimSpace(data)
	isText := !found || len(data) > 0 && data[0] != '{'
	if !isText && !bytes.Contains(head, []byte("error")) && !(mentionsError(data) && wire.SaysError(data)) {
		return event
	}
	return []byte(r.Redact(string(event)))
}

const errorWord = `"error"`

// mentionsError finds a member error that is not null, or the word as a value, without parsing.
func mentionsError(data []byte) bool {
	word := []byte(errorWord)
	for {
		_, rest, found := bytes.Cut(data, word)
		if !found {
			return false
		}
		data = rest
		value, isMember := bytes.CutPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(":"))
		if !isMember || !bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("null")) {
			return true
		}
	}
}

// hide redacts the visible parts of an answer: its headers, the text of an error, and errors from
// reading it.
func (p *Provider) hide(resp *http.Response) {
	r := p.hidden
	for _, names := range [][]string{relayed, advice} {
		for _, name := range names {
			for i, v := range resp.Header[name] {
				resp.Header[name][i] = r.Redact(v)
			}
		}
	}
	for _, name := range withheld {
		if own := resp.Header.Get(name); own != "" {
			r.learned = append(r.learned, lower(own))
		}
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		resp.Body = &namelessBody{resp.Body, r}
		return
	}
	resp.Body = &errorBody{ReadCloser: resp.Body, redactor: r}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

// namelessBody is a body whose errors do not contain the provider's address.
type namelessBody struct {
	io.ReadCloser
	redactor Redactor
}

func (b *namelessBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &namelessError{err, b.redactor}
	}
	return n, err
}

// namelessError is an error whose text does not name our account.
type namelessError struct {
	err      error
	redactor Redactor
}

func (e *namelessError) Error() string { return e.redactor.Redact(e.err.Error()) }
func (e *namelessError) Unwrap() error { return e.err }

const (
	errorMost = 64 << 10 // bytes of a provider's error that are forwarded
	nameMost  = 4 << 10  // maximum bytes of a name that may be cut off at the end
)

// errorBody is the text of an error. It is read completely in the first Read, because a name may
// arrive in two pieces. Nothing of a truncated error is forwarded, because it may end in half a
// name.
type errorBody struct {
	io.ReadCloser
	redactor Redactor
	text     *strings.Reader
	err      error
}

func (b *errorBody) Read(p []byte) (int, error) {
	if b.text == nil {
		text, err := io.ReadAll(io.LimitReader(b.ReadCloser, errorMost+nameMost))
		whole := len(text) < errorMost+nameMost
		shown := b.redactor.Redact(string(text))
		if !whole {
			shown = shown[:max(len(shown)-nameMost, 0)]
		}
		if err != nil {
			shown, b.err = "", &namelessError{err, b.redactor}
		}
		b.text = strings.NewReader(shown)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.text.Read(p)
}

// Writer redacts an answer with a success status that is streamed through it: everything from 4 KiB
// before the place where it first reports a failure. Text generated before that is not changed.
type Writer struct {
	redactor Redactor
	out      io.Writer
	held     []byte // its end may be part of a name, or of the word error
	failed   bool
}

// Writer returns a Writer to out, which must be closed to write the rest.
func (r Redactor) Writer(out io.Writer) *Writer { return &Writer{redactor: r, out: out} }

// Write implements io.Writer. It copies at most a few kilobytes at a time.
func (w *Writer) Write(p []byte) (int, error) {
	for piece := range slices.Chunk(p, nameMost) {
		w.held = append(w.held, piece...)
		text := w.held
		at := bytes.LastIndex(text, []byte(errorWord))
		if at >= 0 && len(text)-at < nameMost/2 { // its value may not have arrived yet
			text = text[:at]
		}
		if err := w.pass(mentionsError(text), nameMost); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close writes the rest. It does not close the underlying io.Writer.
func (w *Writer) Close() error { return w.pass(mentionsError(w.held), 0) }

// pass writes everything except the last keep bytes.
func (w *Writer) pass(failed bool, keep int) error {
	w.failed = w.failed || failed
	if w.failed {
		w.held = []byte(w.redactor.Redact(string(w.held)))
	}
	n := len(w.held) - keep
	if n <= 0 {
		return nil
	}
	_, err := w.out.Write(w.held[:n])
	w.held = append(w.held[:0], w.held[n:]...)
	return err
}
