package azure

import (
	"net/url"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/providers/dialect"
)

// TestCheck finds what is wrong with a base URL, with and without a slash at its end.
func TestCheck(t *testing.T) {
	for base, want := range map[string]string{
		"https://x.openai.azure.com": "", "https://x.openai.azure.com/": "",
		"https://x.openai.azure.com/v1": "ends with /v1,", "https://x.openai.azure.com/v1/": "ends with /v1,",
		"https://x.openai.azure.com/v1/v1":     "version segment twice",
		"https://x.openai.azure.com/openai/a/": "too many path segments",
	} {
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		for _, p := range (Dialect{}).Check(dialect.Account{BaseURL: u}) {
			found += p.Text
		}
		if !strings.Contains(found, want) || (found == "") != (want == "") {
			t.Errorf("%s: got %q, want %q", base, found, want)
		}
	}
}
