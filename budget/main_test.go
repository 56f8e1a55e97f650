package budget

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestMain(m *testing.M) {
	randtest.Checks(30, 3000)
	randtest.Rapid()
	goleak.VerifyTestMain(m, redistest.IgnoreDials())
}
