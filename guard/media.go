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

// media counts images, audio and files, none of which counts as text.
func (e *estimator) media(c *counter, m *wire.Message) error {
	for _, img := range m.Images {
		raw := e.plan.sent.Raw(img.URL)
		if !img.Bare && isOtherData(raw) {
			e.plan.documents++
			c.fixed += mediaTokens(wire.Media{Data: img.URL})
			continue
		}
		w, h := imageSize(raw, img.Bare)
		n := int64(tokenizer.ImageTokens(e.plan.Target.Model, w, h, img.Detail))
		e.plan.imageIn += n
		c.fixed += n
	}
	for _, a := range m.Audio {
		if a.ID != "" {
			return wire.NotFound("messages", "audio_not_found", "No such audio. Send the recording itself as input_audio")
		}
		n := mediaTokens(a)
		e.plan.audioIn += n
		c.fixed += n
	}
	for _, f := range m.Files {
		if f.ID != "" { // it is among the references of the request
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

// read returns the input tokens of a request that was counted as `counted`: documents in it
// may contain any number. A 9 KB PDF unpacks to megabytes of text, and one that the
// provider fetches is not visible at all. The bound is the model's context, unless the
// operator has configured how much the provider reads of a document.
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

// unknownContext replaces the context of a model whose context is not in the catalogue.
const unknownContext = 1 << 20

// mediaTokens estimates the tokens of documents and bounds those of audio: one token per
// two base64 characters is above every documented rate.
func mediaTokens(m wire.Media) int64 { return int64(m.Data.Len())/2 + 1 }

// plainText bounds the tokens of a file that is only text, beyond mediaTokens: a token is
// at least one byte. Readers that go by the name or the first bytes must not take the file
// for anything else.
func (e *estimator) plainText(f wire.Media) (more int64, ok bool) {
	const most = 1 << 20 // of base64; longer texts fill most contexts
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

// isOtherData reports whether the URL of an image holds something else: some providers
// accept any document there.
func isOtherData(quoted []byte) bool {
	address := strings.ToLower(strings.TrimSpace(wire.Word(quoted)))
	return strings.HasPrefix(address, "data:") && !strings.HasPrefix(address, "data:image/")
}

// imageSize reads the image size from the first bytes of a data URL, or of the data itself if it is bare. It
// returns 0, 0 for a remote URL or an unknown format, which are held at the family's maximum.
func imageSize(quoted []byte, bare bool) (w, h int) {
	const headerBytes = 64 << 10
	i := 1
	if !bare {
		i = indexAfterComma(quoted)
	}
	if i < 0 || len(quoted) < 2 {
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

// indexAfterComma returns where the payload of a quoted base64 data URL starts: after its
// first comma, as every reader has it. Nothing before it may be escaped, because an escape
// could be a comma.
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
