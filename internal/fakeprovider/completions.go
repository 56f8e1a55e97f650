package fakeprovider

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/sashabaranov/go-openai"
)

var (
	_ = post("/v1/completions", func(x *exchange) error { return generate(x, x.q.textFields) })
	_ = post("/v1/moderations", answerModerations)
)

// textFields reads the fields of a legacy completion request. Each prompt gets n choices.
func (q *Request) textFields() error {
	limit, bestOf := int64(16), 0
	var options *openai.StreamOptions
	err := q.read(map[string]any{
		"stream": &q.Stream, "stream_options": &options, "max_tokens": &limit, "n": &q.N, "best_of": &bestOf,
		"service_tier": &q.ServiceTier,
	})
	if err != nil {
		return err
	}
	if options != nil {
		q.IncludeUsage = options.IncludeUsage
	}
	if q.has("best_of") && (bestOf < q.N || q.Stream && bestOf > 1) {
		return invalid("best_of", "invalid_value",
			"You requested that the server return more choices than it will generate, or to stream them.")
	}
	q.fields["input"] = q.fields["prompt"]
	if err := q.readInputs(); err != nil {
		return err
	}
	q.MaxTokens, q.bestOf = limit, max(bestOf, q.N)
	q.N *= len(q.inputs)
	q.Requested += limit * int64(q.bestOf*len(q.inputs))
	return nil
}

// promptsTokens returns the input tokens of a legacy completion request.
func (q *Request) promptsTokens() (total int64) {
	for _, in := range q.inputs {
		total += int64(len(in.ids)) + countText(q.Model, in.text)
	}
	return total
}

type textChoice struct {
	Text    string    `json:"text"`
	Index   int       `json:"index"`
	Logprob *struct{} `json:"logprobs"`
	Finish  *string   `json:"finish_reason"`
}

func textBody(x *exchange, a *answer, choices []textChoice, usage json.RawMessage) []byte {
	body := a.frame("text_completion")
	body.ID = "cmpl-" + strings.TrimPrefix(a.id, "chatcmpl-")
	body.Choices, body.Usage = choices, usage
	return encode(body)
}

// answerPlainText writes a legacy completion as one document.
func answerPlainText(x *exchange, a *answer) {
	choices := make([]textChoice, 0, len(a.choices))
	for i, c := range a.choices {
		choices = append(choices, textChoice{Text: strings.Join(c.pieces, ""), Index: i, Finish: &c.finish})
	}
	x.finish(textBody(x, a, choices, x.usage(chatUsage(a.usage))))
}

// textForm writes the chunks of a legacy completion.
type textForm struct{ *stream }

func (s textForm) begin() {}

func (s textForm) piece(i int, d delta) {
	if d.Content == nil {
		return
	}
	s.event(textBody(s.x, s.a, []textChoice{{Text: *d.Content, Index: i}}, nil))
}

func (s textForm) fail(e *apiError) { s.event(e.body()) }

func (s textForm) end() {
	for i, c := range s.a.choices {
		s.event(textBody(s.x, s.a, []textChoice{{Index: i, Finish: &c.finish}}, nil))
	}
	if s.x.q.IncludeUsage {
		if raw := s.x.usage(chatUsage(s.usage)); raw != nil {
			s.event(textBody(s.x, s.a, []textChoice{}, raw))
		}
	}
	s.sayDone()
}

// answerModerations answers POST /v1/moderations; text that contains "kill" is flagged.
func answerModerations(x *exchange) error {
	if err := json.Unmarshal(x.q.Body, &x.q.fields); err != nil {
		return invalid("", "", "We could not parse the JSON body of your request.")
	}
	if !x.q.has("model") {
		x.q.fields["model"] = json.RawMessage(`"omni-moderation-latest"`)
		x.q.Body = encode(x.q.fields)
	}
	err := x.admit(func() error {
		x.q.UserText = string(x.q.fields["input"])
		x.q.Requested = int64(utf8.RuneCountInString(x.q.UserText)+3) / 4
		if !x.q.has("input") {
			return invalid("input", "missing_required_parameter", "Missing required parameter: 'input'.")
		}
		return nil
	})
	if err != nil || x.opening() {
		return err
	}
	var texts []json.RawMessage
	if json.Unmarshal(x.q.fields["input"], &texts) != nil {
		texts = []json.RawMessage{x.q.fields["input"]}
	}
	results := make([]map[string]any, 0, len(texts))
	for _, text := range texts {
		flagged := strings.Contains(string(text), "kill")
		results = append(results, map[string]any{
			"flagged": flagged, "categories": map[string]bool{"violence": flagged},
			"category_scores": map[string]float64{"violence": 0.01},
		})
	}
	x.finish(encode(map[string]any{"id": newID("modr-"), "model": x.q.Model, "results": results}))
	return nil
}
