package simulate

import (
	"encoding/json"

	"github.com/llmguard/llmguard/budget"
)

// recordedLabels are labels as in a ledger entry, an object, or as in an access record, the text of
// budget.Labels.
type recordedLabels budget.Labels

// UnmarshalJSON reads either form.
func (l *recordedLabels) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(l))
	}
	return json.Unmarshal(text, (*budget.Labels)(l))
}
