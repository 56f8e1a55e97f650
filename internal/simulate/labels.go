package simulate

import (
	"encoding/json"

	"github.com/llmguard/llmguard/budget/ledger"
)

// recordedLabels are labels as in a ledger entry, an object, or as in an access record, the text of
// ledger.Labels.
type recordedLabels ledger.Labels

// UnmarshalJSON reads either form.
func (l *recordedLabels) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(l))
	}
	return json.Unmarshal(text, (*ledger.Labels)(l))
}
