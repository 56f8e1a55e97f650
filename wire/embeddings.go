package wire

// maxInputs is the largest number of things to embed in one request.
const maxInputs = 2048

var embeddingsFields = newFields(map[string]reader{
	"model":           (*scanner).readModel,
	"input":           (*scanner).readInput,
	"dimensions":      readInt("dimensions", 1, maxInt, func(s *scanner) *int64 { return &s.req.Dimensions }),
	"encoding_format": readWord("encoding_format", func(s *scanner) *string { return &s.req.EncodingFormat }),
	"service_tier":    readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
	"inference_geo":   readWord("inference_geo", func(s *scanner) *string { return &s.req.InferenceGeo }),
	"user":            nil,
}, (*scanner).unknown)

const inputTypes = "a string, an array of strings, an array of integers, or an array of arrays of integers"

// readInput reads any of the four forms of input; the first element decides.
func (s *scanner) readInput() error {
	if s.peek() == '"' {
		return s.addInput()
	}
	if s.peek() != '[' {
		return s.wrongType("input", inputTypes)
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
			return s.wrongType("input[]", "the same type as the first item")
		case c == '"':
			return s.addInput()
		case c == '[':
			return s.addTokenArray()
		case c == '0':
			s.req.InputItems = 1
			return s.tokenID("input[]")
		}
		return s.wrongType("input[]", "a string, an integer or an array of integers")
	})
	if err == nil && s.req.InputItems == 0 {
		return empty("input")
	}
	return err
}

func (s *scanner) addInput() error {
	at, err := s.stringAt("input[]")
	s.req.Inputs = append(s.req.Inputs, Text{KindInput, at})
	if err != nil {
		return err
	}
	return s.addItem()
}

func (s *scanner) addItem() error {
	s.req.InputItems++
	if s.req.InputItems > maxInputs {
		return BadRequest("input", "array_above_max_length",
			"Invalid 'input': array too long. Expected an array with maximum length %d.", maxInputs)
	}
	return nil
}

func (s *scanner) addTokenArray() error {
	before := s.req.InputTokens
	err := s.array(func(i int) error {
		s.index[1] = i
		return s.tokenID("input[][]")
	})
	if err != nil {
		return err
	}
	if s.req.InputTokens == before {
		return empty(s.param("input[]"))
	}
	return s.addItem()
}

// tokenID reads a token id. It does not count against the token cap.
func (s *scanner) tokenID(param string) error {
	s.tokens++
	_, err := s.integer(param, 0, maxInt)
	s.req.InputTokens++
	return err
}
