package wire

// Completions is the endpoint of legacy completions.
const Completions Endpoint = "completions"

var _ = endpoint(Completions, Traits{
	Path: "/completions", Operation: "text_completion", Makes: Texts, Batched: true, Reusable: true, Shows: true,
	Chunks: true, PerInput: true, OutputField: "max_tokens", DefaultOutput: 16, fields: completionsFields,
	content: []string{"choices"}, generated: scanChoices,
})

// completionsFields are the members of a request for legacy completions, whose prompts have the
// forms of an embeddings input.
var completionsFields = newFields(map[string]reader{
	"model":          readModel,
	"prompt":         readInput("prompt"),
	"suffix":         readSpan("suffix", func(s *scanner) *Span { return &s.req.Beside }), // a part of every prompt
	"max_tokens":     readInt("max_tokens", 0, maxInt, func(s *scanner) *int64 { return &s.maxTokens }),
	"n":              readInt("n", 1, 128, func(s *scanner) *int64 { return &s.req.N }),
	"best_of":        readInt("best_of", 0, 128, func(s *scanner) *int64 { return &s.req.BestOf }),
	"stream":         readBool("stream", func(s *scanner) *bool { return &s.req.Stream }),
	"stream_options": readMembers("stream_options", streamFields),
	"service_tier":   readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
	"inference_geo":  readWord("inference_geo", func(s *scanner) *string { return &s.req.InferenceGeo }),
	"echo":           readBool("echo", func(s *scanner) *bool { return &s.req.Echo }),
}, readUnknown, "frequency_penalty logit_bias logprobs presence_penalty seed stop temperature top_p user")

// Moderations is the endpoint that judges texts and images.
const Moderations Endpoint = "moderations"

// DefaultModeration is the model of moderations that name none.
const DefaultModeration = "omni-moderation-latest"

var _ = endpoint(Moderations, Traits{
	Path: "/moderations", Free: true, Priceable: true, Batched: true, fields: moderationsFields,
	content:  []string{"results"},
	complete: needs("input"),
	defaults: func(r *Request) bool { r.Model = DefaultModeration; return true },
})

var moderationsFields = newFields(map[string]reader{
	"model": readModel,
	"input": readModerated,
}, readUnknown)

var moderatedFields = newFields(map[string]reader{
	"text":      readInputText("input[].text"),
	"image_url": readImage,
}, nil, "type")

// readModerated reads texts, or parts with text or an image. The images are recorded as those of a
// message.
func readModerated(s *scanner) error {
	switch s.peek() {
	case '"':
		return readOneInput(s, "input")
	case '[':
		return s.array(func(i int) error {
			s.index[0] = i
			switch s.peek() {
			case '"':
				return readOneInput(s, "input")
			case '{':
				if len(s.req.Messages) == 0 {
					s.req.Messages = make([]Message, 1)
				}
				if err := s.members("input[]", moderatedFields); err != nil {
					return err
				}
				return s.req.addItem("input")
			}
			return s.wrongType("input[]", "a string or an object")
		})
	}
	return s.wrongType("input", "a string, an array of strings or an array of objects")
}
