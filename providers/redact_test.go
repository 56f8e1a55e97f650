package providers

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func redacting(t *testing.T, change func(*Provider)) Redactor {
	t.Helper()
	base, err := url.Parse("https://our-resource.openai.azure.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{
		ID: "azure", Dialect: DialectOf("azure"), BaseURL: base, APIKey: "0123456789abcdef/Zz+9", Headers: http.Header{},
		Deployments: map[string]string{"gpt-4o": "ours-eu", "gpt-4o-mini": "gpt-4o-mini"}, Pools: []Pool{{ID: "all"}},
	}
	if change != nil {
		change(p)
	}
	if _, err := NewSet([]*Provider{p}); err != nil {
		t.Fatal(err)
	}
	return p.hidden
}

// TestRedact: a name is removed in every spelling, and nothing else.
func TestRedact(t *testing.T) {
	r := redacting(t, nil)
	for text, want := range map[string]string{
		"key 0123456789abcdef/Zz+9.":                  "key [redacted].",
		"key0123456789ABCDEF/ZZ+9x":                   "key[redacted]x",
		"?k=0123456789abcdef%2FZz%2B9":                "?k=[redacted]",
		"0123456789abcdef%2FZz+9":                     "[redacted]",
		`0123456789abcdef\/Zz+9`:                      "[redacted]",
		`{"m":"\u0030123456789abcdef/Zz+9"}`:          `{"m":"[redacted]"}`,
		"0123****z+9, 0123..., ...z+9, 0123•••, •":    "[redacted], [redacted], [redacted], [redacted], •",
		"**bold** and so on... or a*b**c":             "**bold** and so on... or a*b**c",
		"https://our-resource.openai.azure.com/v1/x":  "[redacted]/x",
		"https:\\/\\/OUR-resource.openai.azure.com/x": "https:\\/\\/[redacted]/x",
		"resource our-resource, not your-resource":    "resource [redacted], not your-resource",
		"deployment ours-eu, colours-europe":          "deployment [redacted], colours-europe",
		"model gpt-4o-mini":                           "model gpt-4o-mini",
		"in organization org-AbCdEfGh12345678XyZ on":  "in organization [redacted] on",
		"project proj_AbCdEfGh12345678XyZ, org-chart": "project [redacted], org-chart",
		"no name, „quoted“ in UTF-8 \\ \" \\\"":       "no name, „quoted“ in UTF-8 \\ \" \\\"",
		"": "",
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// TestRedactOwnCredential: an org's own credential is removed, and so is the deployment's.
func TestRedactOwnCredential(t *testing.T) {
	var p *Provider
	redacting(t, func(made *Provider) { p = made })
	own := p.As("another-key-of-the-org")
	if got := own.hidden.Redact("another-key-of-the-org, 0123456789abcdef/Zz+9"); got != "[redacted], [redacted]" {
		t.Error(got)
	}
	if got := p.hidden.Redact("another-key-of-the-org"); got != "another-key-of-the-org" {
		t.Error(got)
	}
}

// TestRedactHeaders: header values set by the operator are names, unless they are short words.
func TestRedactHeaders(t *testing.T) {
	r := redacting(t, func(p *Provider) {
		p.Headers = http.Header{"Openai-Project": {"eu"}, "X-Gateway": {"Bearer gateway-token"}, "X-Flag": {"true"}}
	})
	if got := r.Redact("eu, eurasia, gateway-token, true"); got != "[redacted], eurasia, [redacted], true" {
		t.Error(got)
	}
}

// TestRedactUnseen: once a streamed answer reports a failure, nothing names the account, in
// whatever pieces it arrives; generated text is not changed.
func TestRedactUnseen(t *testing.T) {
	r := redacting(t, nil)
	const key = "0123456789abcdef/Zz+9"
	long := strings.Repeat("x", 10_000) + key + `\"error\": no`
	write := func(text string, size int) string {
		var out strings.Builder
		w := r.Writer(&out)
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, size := range []int{13, 1000, 5000, 1 << 20} {
		for text, want := range map[string]string{
			`{"choices":[{"text":"` + long + `","error": null,"error":null}]}`:         `{"choices":[{"text":"` + long + `","error": null,"error":null}]}`,
			`{"message":"` + key + `","object":"error","x":"` + long + `"}`:            `{"message":"[redacted]","object":"error","x":"` + strings.Replace(long, key, Redacted, 1) + `"}`,
			`{"error" : "` + long + key:                                                `{"error" : "` + strings.Replace(long, key, Redacted, 1) + Redacted,
			`{"text":"` + strings.Repeat("y", 5000) + `","error":{"m":"` + key + `"}}`: `{"text":"` + strings.Repeat("y", 5000) + `","error":{"m":"[redacted]"}}`,
			"": "",
		} {
			if got := write(text, size); got != want {
				t.Errorf("in pieces of %d:\n got %.100s ... %s\nwant %.100s ... %s", size, got, got[max(len(got)-100, 0):], want, want[max(len(want)-100, 0):])
			}
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("a 0123456789abcdef/Zz+9 b")
	f.Add(`"\"0123456789abcdef\/Zz+9\u"`)
	base, _ := url.Parse("https://our-resource.openai.azure.com/v1")
	p := &Provider{Dialect: DialectOf("azure"), BaseURL: base, APIKey: "0123456789abcdef/Zz+9"}
	p.hidden = newRedactor(p)
	f.Fuzz(func(t *testing.T, text string) {
		got := p.hidden.Redact(text)
		if folded := strings.ToLower(got); strings.Contains(folded, "0123456789abcdef/zz+9") || strings.Contains(folded, "our-resource.openai.azure.com") {
			t.Errorf("%q became %q", text, got)
		}
	})
}
