package guard

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// media counts images, audio and files, none of which is ever counted as text.
func (e *estimator) media(c *counter, m *wire.Message) error {
	for _, img := range m.Images {
		raw := e.plan.sent.Raw(img.URL)
		if isOtherData(raw) {
			e.plan.documents++
			c.fixed += mediaTokens(wire.Media{Data: img.URL})
			continue
		}
		w, h := imageSize(raw)
		n := int64(tokenizer.ImageTokens(e.plan.Target.Model, w, h, img.Detail))
		e.plan.imageIn += n
		c.fixed += n
	}
	for _, a := range m.Audio {
		if a.ID != "" {
			return wire.NotFound("messages", "audio_not_found", "No such audio: send the recording itself as input_audio")
		}
		n := mediaTokens(a)
		e.plan.audioIn += n
		c.fixed += n
	}
	for _, f := range m.Files {
		if f.ID != "" { // it is among what the request refers to
			continue
		}
		c.fixed += mediaTokens(f)
		if n, ok := e.plainText(f); ok {
			c.fixed += n
			continue
		}
		e.plan.documents++
	}
	return nil
}

// read is how many tokens the request has as input when it was counted as so many:
// the documents in it may hold any number. A PDF of 9 KB unpacks to megabytes of
// text, and one that the provider fetches does not show at all. What a request can
// hold ends where the model's context does, unless the operator knows how much the
// provider reads of a document.
func (e *estimator) read(counted int64) int64 {
	if e.plan.documents == 0 {
		return counted
	}
	bound := max(counted, cmp.Or(e.plan.Price.Context, unknownContext))
	if each := e.plan.Target.Provider.DocumentTokens; each > 0 {
		bound = min(bound, counted+each*e.plan.documents)
	}
	e.plan.unread = bound - counted
	return bound
}

// unknownContext stands in for the context of a model nobody wrote down.
const unknownContext = 1 << 20

// mediaTokens is what audio and documents probably count, and a bound for audio: one
// token per two base64 characters is above every documented rate.
func mediaTokens(m wire.Media) int64 { return int64(m.Data.Len())/2 + 1 }

// plainText bounds the tokens of a file that is nothing but text, beyond
// mediaTokens: a token is at least a byte. Readers that go by the name or by what
// the file begins with must not take it for anything else.
func (e *estimator) plainText(f wire.Media) (more int64, ok bool) {
	const most = 1 << 20 // of base64; the text of more fills most contexts
	raw := e.plan.sent.Raw(f.Data)
	at := indexAfterComma(raw)
	if at < 0 || len(raw) > most || !bytes.HasPrefix(raw, []byte(`"data:text/`)) ||
		strings.HasSuffix(strings.ToLower(f.Name), ".pdf") {
		return 0, false
	}
	text, err := base64.StdEncoding.DecodeString(string(raw[at : len(raw)-1]))
	if err != nil || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 || bytes.Contains(text, []byte("%PDF")) {
		return 0, false
	}
	return max(int64(len(text))-mediaTokens(f), 0), true
}

// isOtherData reports whether the address of an image holds something else: some
// providers take any document there.
func isOtherData(quoted []byte) bool {
	address := strings.ToLower(strings.TrimSpace(wire.Word(quoted)))
	return strings.HasPrefix(address, "data:") && !strings.HasPrefix(address, "data:image/")
}

// imageSize reads the size of a data URL from its first bytes; 0, 0 for a
// remote URL or an unknown format, which are held at the family's maximum.
func imageSize(quoted []byte) (w, h int) {
	const headerBytes = 64 << 10
	i := indexAfterComma(quoted)
	if i < 0 {
		return 0, 0
	}
	data := quoted[i : len(quoted)-1]
	data = data[:min(len(data), headerBytes)&^3]
	head := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
	n, _ := base64.StdEncoding.Decode(head, data)
	w, h, ok := tokenizer.ImageSize(head[:n])
	if !ok {
		return 0, 0
	}
	return w, h
}

// indexAfterComma finds where the payload of a quoted base64 data URL begins:
// after its first comma, where every reader takes it to begin. Before it nothing may
// be escaped, which could be a comma.
func indexAfterComma(quoted []byte) int {
	const scheme, marker = `"data:`, ";base64,"
	if len(quoted) < len(scheme)+1 || string(quoted[:len(scheme)]) != scheme {
		return -1
	}
	comma := bytes.IndexByte(quoted[:min(len(quoted), 256)], ',')
	if comma < 0 || !bytes.HasSuffix(quoted[:comma+1], []byte(marker)) || bytes.IndexByte(quoted[:comma], '\\') >= 0 {
		return -1
	}
	return comma + 1
}
