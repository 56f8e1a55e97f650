package admin_test

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestWhyOfRecentCall: a call of this moment may not be recorded yet, and why says so.
func TestWhyOfRecentCall(t *testing.T) {
	d := deploy(t)
	redistest.Eventually(t, "an answer for a call of the last seconds", func() bool {
		w := d.send("GET", "/why/"+wire.NewCallID(), "")
		return strings.Contains(w.Body.String(), "It may not be recorded yet: repeat in a few seconds.")
	})
}
