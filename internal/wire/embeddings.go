package wire

// Embeddings is the endpoint that turns texts into vectors.
const Embeddings Endpoint = "embeddings"

var _ = endpoint(Embeddings, Traits{
	Path: "/embeddings", Operation: "embeddings", Batched: true, Reusable: true, fields: embeddingsFields,
	content:  []string{"data"},
	complete: needs("input"),
	AnswerBytes: func(r *Request) int64 {
		vector := int64(64 << 10)
		if r.EncodingFormat == "base64" {
			vector = 18 << 10
		}
		return int64(max(r.InputItems, 1)) * vector
	},
})

// maxInputs is the maximum number of inputs per request.
const maxInputs = 2048

var embeddingsFields = newFields(map[string]reader{
	"model":           readModel,
	"input":           readInput("input"),
	"dimensions":      readInt("dimensions", 1, maxInt, func(s *scanner) *int64 { return &s.req.Dimensions }),
	"encoding_format": readWord("encoding_format", func(s *scanner) *string { return &s.req.EncodingFormat }),
	"service_tier":    readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
	"inference_geo":   readWord("inference_geo", func(s *scanner) *string { return &s.req.InferenceGeo }),
}, readUnknown, "user")

const inputTypes = "a string, an array of strings, an array of integers, or an array of arrays of integers"

// readInput reads any of the four forms of input; the first element determines the form.
func readInput(param string) reader {
	return func(s *scanner) error { return readInputs(s, param) }
}

func readInputs(s *scanner, param string) error {
	if s.peek() == '"' {
		return readOneInput(s, param)
	}
	if s.peek() != '[' {
		return s.wrongType(param, inputTypes)
	}
	var form byte
	err := s.array(func(i int) error {
		c := s.peek()
		if isDigit(c) || c == '-' {
			c = '0'
		}
		if i == 0 {
			form = c
		}
		s.index[0] = i
		switch {
		case c != form:
			return s.wrongType(param+"[]", "the same type as the first item")
		case c == '"':
			return readOneInput(s, param)
		case c == '[':
			return readTokenArray(s, param)
		case c == '0':
			s.req.InputItems = 1
			return readTokenID(s, param+"[]")
		}
		return s.wrongType(param+"[]", "a string, an integer or an array of integers")
	})
	if err == nil && s.req.InputItems == 0 {
		return empty(param)
	}
	return err
}

func readOneInput(s *scanner, param string) error {
	at, err := s.stringAt(param + "[]")
	s.req.Inputs = append(s.req.Inputs, Text{KindInput, at})
	if err != nil {
		return err
	}
	return s.req.addItem(param)
}

func (r *Request) addItem(param string) error {
	r.InputItems++
	if r.InputItems > maxInputs {
		return BadRequest(param, "array_above_max_length",
			"Invalid '%s': array too long. Expected an array with maximum length %d.", param, maxInputs)
	}
	return nil
}

func readTokenArray(s *scanner, param string) error {
	before := s.req.InputTokens
	err := s.array(func(i int) error {
		s.index[1] = i
		return readTokenID(s, param+"[][]")
	})
	if err != nil {
		return err
	}
	if s.req.InputTokens == before {
		return empty(s.param(param + "[]"))
	}
	return s.req.addItem(param)
}

// readTokenID reads a token id. It does not count toward the token limit.
func readTokenID(s *scanner, param string) error {
	s.tokens++
	_, err := s.integer(param, 0, maxInt)
	s.req.InputTokens++
	return err
}
