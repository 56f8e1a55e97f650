package pricing

import (
	"os"
	"testing"

	"github.com/llmguard/llmguard/internal/randtest"
)

func TestMain(m *testing.M) {
	randtest.Rapid()
	os.Exit(m.Run())
}
