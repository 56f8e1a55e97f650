// Package dialect says what may differ between providers. Every dialect is a package of its own that implements
// [Dialect]; package providers lists them.
package dialect

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
)

// Dialect is how the servers of one kind of provider deviate from OpenAI's API. Its values have no state and are safe
// for concurrent use. A dialect embeds the one that it resembles, at least package openai's, and has methods for the
// differences.
type Dialect interface {
	// Name is the kind of such providers in the configuration.
	Name() string
	// System is the name of the provider in OpenTelemetry's conventions, or "" if any vendor may be behind it.
	System() string

	// Request turns a request of OpenAI's API into one of the provider: its URL, which is the account's base URL, its
	// credential and, if the provider wants another form, its body. After an error nothing is sent.
	Request(r *http.Request, c Call) error
	// Response turns the provider's answer to c into one of OpenAI's API: its headers, and its body as it is read. It
	// may be an error or a stream. The call is charged as interrupted after an error.
	Response(resp *http.Response, c Call) error

	// Forwards reports whether a header of the caller's request is sent, by its canonical name, and Parameters
	// whether a parameter of its query is.
	Forwards(header string) bool
	Parameters(name string) bool

	// Edits are the changes that a request of a caller needs beside the model and the name of the output limit.
	Edits(r *wire.Request) []wire.Edit
	// LimitFields are the names of a chat's output limit that the provider knows; nil if that depends on the model.
	LimitFields(base *url.URL) []string
	// Effect is the effect on the bill of a member that OpenAI's API does not have; Unknown for members that the
	// provider does not have either.
	Effect(name string) Effect

	// Usage corrects what was read of a whole answer of ep, or of an event of its stream: doc is its JSON. It is
	// called for every event, also for those without usage.
	Usage(ep wire.Endpoint, doc []byte, a *wire.Answer)

	// Wires are the endpoints of conversations that the provider has. Those of others are translated to the first.
	Wires(base *url.URL) []wire.Endpoint
	// Batches is the provider's Batch API, whose requests c sends; nil if it has none. c may be nil if none is sent.
	Batches(c BatchClient) Batches
	// SplitsQuota reports whether the provider has separate quotas of input and output tokens.
	SplitsQuota() bool
	// Region is the region that a host of the provider names, or "".
	Region(base *url.URL) string
	// Names are words that identify the account, beside its credential and its URL. They are removed from errors.
	Names(a Account) []string
	// Settings are the names of the settings that only some dialects have: api_version, deployments.
	Settings() []string
	// Check finds mistakes in the configuration of an account.
	Check(a Account) []Problem
}

// Account is what a request needs of its provider's account.
type Account struct {
	BaseURL     *url.URL // not to be changed
	Key         string   // "": it has none
	APIVersion  string
	Deployments map[string]string // by model
}

// Call is a request of OpenAI's API that is sent to a provider.
type Call struct {
	Account Account
	Path    string // below the base URL, such as /chat/completions
	Query   string // only of Parameters
	Model   string // the provider's name; "" if the request has none
}

// Problem is something wrong in the configuration of an account.
type Problem struct {
	Field  string // such as base_url
	Member string // of a field with names, else ""
	Text   string // what is wrong, and without Advice also what to do
	Advice string // what to do about something that may be intended; "" for an error
}

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

// Segment makes a name a single path segment: the model is chosen by the caller and must not lead
// to another path. Characters that deployment names cannot have become _.
func Segment(name string) string {
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, name)
	if strings.Trim(name, ".") == "" {
		return "_"
	}
	return name
}
