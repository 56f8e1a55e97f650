package pricing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Feed is the result of importing another project's price list.
type Feed struct {
	// Name is "genai-prices", "litellm" or "csv".
	Name string
	// Entries together pass the checks of [Catalogue.With].
	Entries []Entry
	// Notes say what was left out and why.
	Notes []Note
}

// Note is a remark on one model of a feed.
type Note struct{ Provider, Model, Text string }

// Catalogue returns a catalogue of only the feed's entries.
func (f *Feed) Catalogue() (*Catalogue, error) { return New("usd", f.Entries) }

// maxFeed bounds the size of a feed file in bytes; the largest is under 2 MB.
const maxFeed = 64 << 20

// feedReader collects valid entries for a catalogue.
type feedReader struct {
	feed  Feed
	layer layer
}

func newFeedReader(name string) *feedReader {
	return &feedReader{feed: Feed{Name: name}, layer: layer{exact: make(map[string][]*entry)}}
}

func (r *feedReader) note(provider, model, format string, args ...any) {
	r.feed.Notes = append(r.feed.Notes, Note{provider, model, fmt.Sprintf(format, args...)})
}

func (r *feedReader) add(e Entry) {
	c, err := compile(e, nil)
	if err == nil {
		err = r.layer.add(c)
	}
	if err != nil {
		r.note(e.Provider, e.Model, "left out: %v", err)
		return
	}
	r.feed.Entries = append(r.feed.Entries, c.src)
}

func decodeFeed(name string, from io.Reader, into any) error {
	text, err := io.ReadAll(io.LimitReader(from, maxFeed+1))
	switch {
	case err != nil:
	case len(text) > maxFeed:
		err = fmt.Errorf("larger than %d bytes", maxFeed)
	default:
		err = jsonFault(text, json.Unmarshal(text, into))
	}
	if err != nil {
		return fmt.Errorf("pricing: %s: %w", name, err)
	}
	return nil
}

// CheckJSON returns an error with the line in which text stops being one JSON value; nil if it is
// one.
func CheckJSON(text []byte) error {
	var value json.RawMessage
	return jsonFault(text, json.Unmarshal(text, &value))
}

// jsonFault adds the line in text to an error of encoding/json, and rewords it in JSON terms.
func jsonFault(text []byte, err error) error {
	if err != nil && len(bytes.TrimSpace(text)) == 0 {
		return errors.New("the file is empty")
	}
	offset, what := jsonProblem(text, err)
	if offset < 0 {
		return what
	}
	line := 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte("\n"))
	return fmt.Errorf("line %d: %w", line, what)
}

// jsonProblem rewords an error of encoding/json in JSON terms and returns its offset in text, -1 if
// it has none.
func jsonProblem(text []byte, err error) (offset int64, what error) {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(text)) &&
		strings.Contains(syntax.Error(), "unexpected end"):
		return syntax.Offset, errors.New("the JSON ends too early: is the file whole?")
	case errors.As(err, &syntax):
		return syntax.Offset, fmt.Errorf("not JSON: %w", err)
	case errors.As(err, &kind):
		place := ""
		if kind.Field != "" {
			place = " in " + kind.Field
		}
		return kind.Offset, fmt.Errorf("%s where %s is expected%s", kind.Value, jsonKind(kind.Type), place)
	}
	return -1, err
}

// jsonKind returns the JSON name of the kind of type t.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return "number"
		}
		return "string"
	}
	return "number"
}

// feedPrice parses a number in a feed in units of 10^digits pico-USD. The text is parsed as a
// decimal, never as a float.
func feedPrice(n json.Number, digits int) (Rate, error) {
	limit := int64(maxTokenRate)
	if digits != tokenDigits {
		limit = maxFee
	}
	return parseRate(n.String(), digits, limit)
}

// feedCount parses a token count; 0 if it is not a plausible integer.
func feedCount(n json.Number) int64 {
	v, err := parseDecimal(n.String(), 0)
	if err != nil || v > MaxCount {
		return 0
	}
	return v
}

func free(rows []Row) bool {
	for _, row := range rows {
		for _, f := range row.Rates.fields() {
			if f.rate.Pico > 0 {
				return false
			}
		}
	}
	return true
}

// isEmbedding recognizes models without an output price because they have no output.
func isEmbedding(model string) bool { return strings.Contains(strings.ToLower(model), "embed") }

// canonicalProvider maps providers' names in feeds to ours.
func canonicalProvider(name string) string {
	switch name = strings.ToLower(name); name {
	case "gemini", "google-ai-studio":
		return "google"
	case "xai", "x_ai":
		return "x-ai"
	case "together_ai", "togetherai":
		return "together"
	case "moonshot", "moonshotai-cn":
		return "moonshotai"
	case "mistralai":
		return "mistral"
	case "cohere_chat":
		return "cohere"
	case "text-completion-openai":
		return "openai"
	case "zhipuai", "z-ai", "z.ai":
		return "zai"
	}
	return name
}
