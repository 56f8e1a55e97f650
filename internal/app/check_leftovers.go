package app

import (
	"context"
	"fmt"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/finance"
	"github.com/llmguard/llmguard/internal/removed"
)

// CheckLeftovers names the files of features that this version does not have. A directory or bucket that
// cannot be listed has none: a credential for exports may only write.
func CheckLeftovers(ctx context.Context, cfg *config.Config) []diagnose.Finding {
	old, err := finance.Leftovers(ctx, cfg.Finance.Export.To)
	if err != nil || len(old) == 0 {
		return nil
	}
	return []diagnose.Finding{{
		Area: "finance", Level: diagnose.Warning,
		What: fmt.Sprintf("finance.export.to: Parquet files that are no longer updated: %d, such as %s", len(old), old[0]),
		Fix:  "Let their readers use the CSV files, and delete them: " + removed.Parquet + ".",
	}}
}
