package sdk

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/llmguard/llmguard/internal/wire"
)

// members returns the JSON names of the SDK's parameters for a call.
func members(params any) []string {
	var out []string
	typ := reflect.TypeOf(params)
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			out = append(out, name)
		}
	}
	return out
}

// dear are members of OpenAI's API whose cost is not limited by any price. They are rejected
// unless the provider's configuration lists them.
var dear = []string{"complexity", "svg"}

// TestMembersOfTheSDKAreKnown: everything that OpenAI's SDK can send is either read or known to
// be free, and is not rejected as a vendor field.
func TestMembersOfTheSDKAreKnown(t *testing.T) {
	for ep, x := range map[wire.Endpoint]struct {
		params any
		body   string
	}{
		wire.ChatCompletions:  {openai.ChatCompletionNewParams{}, `"messages":[{"role":"user","content":"x"}]`},
		wire.Completions:      {openai.CompletionNewParams{}, `"prompt":"x"`},
		wire.Embeddings:       {openai.EmbeddingNewParams{}, `"input":"x"`},
		wire.Moderations:      {openai.ModerationNewParams{}, `"input":"x"`},
		wire.Responses:        {responses.ResponseNewParams{}, `"input":"x"`},
		wire.ResponsesCompact: {responses.ResponseCompactParams{}, `"input":"x"`},
		wire.ResponsesTokens:  {responses.InputTokenCountParams{}, `"input":"x"`},
		wire.ImageGenerations: {openai.ImageGenerateParams{}, `"prompt":"x"`},
		wire.Speech:           {openai.AudioSpeechNewParams{}, `"input":"x"`},
	} {
		names := append(members(x.params), "stream")
		if len(names) < 3 || !slices.Contains(names, "model") {
			t.Fatalf("%s: the SDK's parameters have the members %q", ep, names)
		}
		body := `{"model":"m",` + x.body
		for _, name := range names {
			if name != "model" && !strings.HasPrefix(x.body, `"`+name+`"`) {
				body += fmt.Sprintf(`,%q:null`, name)
			}
		}
		r, err := wire.Scan(ep, []byte(body+"}"), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range r.Unknown {
			if !slices.Contains(dear, name) && name != "stream" {
				t.Errorf("%s: %q is not known", ep, name)
			}
		}
	}
}

// TestFieldsOfTheSDKAreKnown does the same for forms.
func TestFieldsOfTheSDKAreKnown(t *testing.T) {
	for ep, params := range map[wire.Endpoint]any{
		wire.ImageEdits:      openai.ImageEditParams{},
		wire.ImageVariations: openai.ImageNewVariationParams{},
		wire.Transcriptions:  openai.AudioTranscriptionNewParams{},
		wire.Translations:    openai.AudioTranslationNewParams{},
	} {
		for _, name := range append(members(params), "stream") {
			if slices.Contains(dear, name) {
				continue
			}
			if unknown := unknownField(t, ep, name); unknown != nil {
				t.Errorf("%s: got %q unknown, want it known", ep, unknown)
			}
		}
	}
}

// unknownField scans a form with one field, and returns the unknown fields.
func unknownField(t *testing.T, ep wire.Endpoint, name string) []string {
	t.Helper()
	part := func(name, extra, value string) string {
		return fmt.Sprintf("--b\r\nContent-Disposition: form-data; name=%q%s\r\n\r\n%s\r\n", name, extra, value)
	}
	values := map[string]string{"model": "m", "prompt": "x", "file": "f", "image": "f"}
	if name == "mask" || name == "markup" {
		values[name] = "f"
	} else if values[name] == "" {
		values[name] = "1"
	}
	if name == "stream" {
		values[name] = "true"
	}
	text := ""
	for field, value := range values {
		extra := ""
		if value == "f" {
			extra = `; filename="f"`
		}
		text += part(field, extra, value)
	}
	r, err := wire.ScanForm(ep, "", "multipart/form-data; boundary=b", strings.NewReader(text+"--b--\r\n"))
	if err != nil {
		t.Fatalf("%s with %s: %v", ep, name, err)
	}
	return r.Unknown
}
