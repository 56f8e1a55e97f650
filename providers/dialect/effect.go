package dialect

import "strings"

// Effect is the effect on the bill of a request member that OpenAI's API does not have.
type Effect uint8

// The effects of a member. Unknown and Priced ones are refused unless the provider's configuration lists them.
const (
	Unknown  Effect = iota
	Harmless        // changes how an answer is sampled or presented
	Thinks          // the answer may have invisible output within the output limit
	Priced          // has a cost that the price of the request does not include
)

// Free returns the effects of members that cost nothing, given as lists separated by spaces: of harmless ones, and of
// those that make a model think.
func Free(harmless, thinks string) map[string]Effect {
	free := map[string]Effect{}
	for name := range strings.FieldsSeq(harmless) {
		free[name] = Harmless
	}
	for name := range strings.FieldsSeq(thinks) {
		free[name] = Thinks
	}
	return free
}
