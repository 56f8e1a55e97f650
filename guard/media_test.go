package guard

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// part returns a chat request to gpt-4o with one content part.
func part(json string) string {
	return `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":[` + json + `]}]}`
}

// TestDocumentsAreHeldAtTheContext checks that a document, whose token count its bytes do
// not show, is held at the model's whole context, in whatever part it comes.
func TestDocumentsAreHeldAtTheContext(t *testing.T) {
	r := newRig(t)
	const window = 128_000 // of gpt-4o
	pdf := `"data:application/pdf;base64,` + base64.StdEncoding.EncodeToString([]byte("%PDF-1.7 small")) + `"`
	text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("%20", 1000)))
	for name, x := range map[string]struct {
		part  string
		known bool // its text is visible
	}{
		"a PDF":                   {`{"type":"file","file":{"filename":"a.pdf","file_data":` + pdf + `}}`, false},
		"a PDF without a type":    {`{"type":"file","file":{"file_data":"JVBERi0xLjc="}}`, false},
		"a PDF called text":       {`{"type":"file","file":{"file_data":"data:text/plain;base64,JVBERi0xLjc="}}`, false},
		"text called a PDF":       {`{"type":"file","file":{"filename":"a.PDF","file_data":"data:text/plain;base64,` + text + `"}}`, false},
		"an archive called text":  {`{"type":"file","file":{"file_data":"data:text/plain;base64,UEsDBBQAAAA="}}`, false},
		"a PDF behind a comma":    {`{"type":"file","file":{"file_data":"data:text/plain;base64\u002cJVBERi0xLjc=;base64,` + text + `"}}`, false},
		"a text":                  {`{"type":"file","file":{"filename":"a.txt","file_data":"data:text/plain;base64,` + text + `"}}`, true},
		"an address":              {`{"type":"file","file":{"url":"https://example.com/a.pdf"}}`, false},
		"Mistral's document":      {`{"type":"document_url","document_url":"https://example.com/a.pdf"}`, false},
		"Anthropic's document":    {`{"type":"document","source":{"type":"base64","data":"JVBERi0xLjc="}}`, false},
		"a video":                 {`{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}`, false},
		"a PDF as an image":       {`{"type":"image_url","image_url":{"url":` + pdf + `}}`, false},
		"a PDF as an IMAGE":       {`{"type":"image_url","image_url":{"url":"\u0044ATA:application/pdf;base64,JVBERi0xLjc="}}`, false},
		"a document by the image": {`{"type":"image_url","image_url":{"url":"https://example.com/a.png","document":"https://example.com/a.pdf"}}`, false},
		"an image":                {`{"type":"image_url","image_url":{"url":"https://example.com/a.png","format":"image/png"}}`, true},
		"earlier thoughts":        {`{"type":"thinking","thinking":[{"type":"text","text":"hm"}],"signature":"abc"}`, true},
	} {
		p := r.plan(part(x.part))
		if held := p.Input >= window; held == x.known {
			t.Errorf("%s: %d tokens of input are held, the model takes %d", name, p.Input, window)
		}
		if p.Quota > 4000 {
			t.Errorf("%s: takes %d of the provider's quota", name, p.Quota)
		}
	}
	beside := `{"model":"gpt-4o","messages":[{"role":"user","content":"x","attachments":[{"url":"https:\/\/example.com\/a.pdf"}]}]}`
	if p := r.plan(beside); p.Input < window {
		t.Errorf("an attachment: %d tokens of input are held", p.Input)
	}
	two := r.plan(part(`{"type":"file","file":{"file_data":` + pdf + `}},{"type":"document_url","document_url":"https://example.com"}`))
	if two.Input != window {
		t.Errorf("two documents: %d tokens of input are held, want %d: no request is longer", two.Input, window)
	}
	unknown := r.plan(strings.Replace(part(`{"type":"document_url","document_url":"https://example.com"}`), "gpt-4o", "talker", 1))
	if unknown.Input != unknownContext {
		t.Errorf("a model of unknown context: %d tokens of input are held, want %d", unknown.Input, unknownContext)
	}
}

// TestStoppedDocumentIsExact checks that a stream whose input is not visible is read to its
// end when its caller leaves, and that one lost by a gateway is charged what is visible.
func TestStoppedDocumentIsExact(t *testing.T) {
	r := newRig(t, roomy()...)
	body := func(fake string) string {
		return `{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"[fake: output=40 ` + fake + `]"},` +
			`{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjc="}}]}]}`
	}
	ctx, leave := context.WithCancel(t.Context())
	c := r.begin(r.plan(body("gap=3ms")))
	w := &quitter{ResponseWriter: httptest.NewRecorder(), events: 10, leave: leave}
	if err := c.Forward(ctx, w, Forwarding{Header: http.Header{}}); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	c.End(ctx)
	if c.Result.Outcome != Completed || c.Result.Estimated || c.Result.Usage.Input > 1000 {
		t.Errorf("%s: %d tokens of input charged, estimated %v", c.Result.Outcome, c.Result.Usage.Input, c.Result.Estimated)
	}
	failed, _, _ := r.run(t.Context(), body("status=502"))
	if failed.Result.Outcome != UpstreamError || failed.Result.Usage.Input > 1000 {
		t.Errorf("%s: %d tokens of input charged", failed.Result.Outcome, failed.Result.Usage.Input)
	}
}

// TestRefusedDocumentSaysWhy checks that a call too large because of its documents says so.
func TestRefusedDocumentSaysWhy(t *testing.T) {
	small := roomy()
	small[0].Shape.Amount = 1000
	r := newRig(t, small...)
	err := r.plan(part(`{"type":"document_url","document_url":"https://example.com"}`)).Check()
	var e *Refusal
	if !errors.As(err, &e) || !strings.Contains(e.Public().Message, "document_tokens") {
		t.Errorf("got %v, want advice on document_tokens", err)
	}
}

// TestDocumentTokens checks that the operator can configure how much a provider reads of a
// document.
func TestDocumentTokens(t *testing.T) {
	r := newRig(t)
	r.guard.Policy().Providers.Get("openai").DocumentTokens = 3000
	one := `{"type":"document_url","document_url":"https://example.com"}`
	if p := r.plan(part(one)); p.Input < 3000 || p.Input > 3100 {
		t.Errorf("a document: %d tokens of input are held, want 3000 and the rest", p.Input)
	}
	if p := r.plan(part(one + "," + one)); p.Input < 6000 || p.Input > 6100 {
		t.Errorf("two documents: %d tokens of input are held, want 6000 and the rest", p.Input)
	}
	many := one + strings.Repeat(","+one, 99)
	if p := r.plan(part(many)); p.Input != 128_000 {
		t.Errorf("a hundred documents: %d tokens of input are held, want 128000", p.Input)
	}
}

// TestIdsAreRefusedAnywhere checks that an id that the org does not own is refused anywhere
// in the request.
func TestIdsAreRefusedAnywhere(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{
		part(`{"type":"file","file_id":"f1"}`),
		part(`{"type":"document","document":"file-1a2b3c4d5e6f7g8h"}`),
		prompt("gpt-4o", "x", `"attachments":[{"file_id":"f1"}]`),
		`{"model":"text-embedding-3-small","input":"x","file_id":"f1"}`,
	} {
		_, err := r.prepare(body)
		var e *wire.Error
		if !errors.As(err, &e) || e.Status != http.StatusNotFound || e.Code != "file_not_found" {
			t.Errorf("%s: got %v, want 404 file_not_found", body, err)
		}
	}
}

// TestImageBehindTwoCommas checks that the payload of a data URL starts after its first
// comma.
func TestImageBehindTwoCommas(t *testing.T) {
	small := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00CRC.\x00\x00\x00\x01IDAT"))
	if w, h := imageSize([]byte(`"data:image/png;base64,`+small+`"`), false); w != 1 || h != 1 {
		t.Errorf("one comma: %d x %d, want 1 x 1", w, h)
	}
	if w, h := imageSize([]byte(`"data:image/png,large;base64,`+small+`"`), false); w != 0 || h != 0 {
		t.Errorf("two commas: %d x %d, want no size", w, h)
	}
	if w, h := imageSize([]byte(`"data:image/png;base64\u002clarge;base64,`+small+`"`), false); w != 0 || h != 0 {
		t.Errorf("an escaped comma: %d x %d, want no size", w, h)
	}
	if most, one := tokenizer.ImageTokens("gpt-4o", 0, 0, ""), tokenizer.ImageTokens("gpt-4o", 1, 1, ""); most <= one {
		t.Errorf("an image of unknown size counts %d, a small one %d", most, one)
	}
}
