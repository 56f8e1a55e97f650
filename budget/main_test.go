package budget

import (
	"flag"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestMain(m *testing.M) {
	checks := strconv.Itoa(rounds(30, 3000)) // of rapid; the command line may override it
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	randtest.Rapid()
	goleak.VerifyTestMain(m, redistest.IgnoreDials())
}
