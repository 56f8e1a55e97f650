package wire

// RefKind says what a [Ref] names.
type RefKind string

// The kinds of things a provider keeps.
const (
	RefResponse     RefKind = "response"
	RefItem         RefKind = "item" // of the input or output of a response
	RefConversation RefKind = "conversation"
	RefFile         RefKind = "file"
	RefPrompt       RefKind = "prompt"
	RefVectorStore  RefKind = "vector_store"
	RefContainer    RefKind = "container"
)

// Ref is a mention of something kept at the provider. Who may use it the
// request does not show.
type Ref struct {
	Kind RefKind
	ID   string
	// Param is the member that names it.
	Param string
	// Reasoning says that it is an item of that type, of which the request may
	// hold all that shows.
	Reasoning bool
}

// maxRefs bounds what has to be looked up for one request.
const maxRefs = 1024

func (s *scanner) addRef(kind RefKind, id, param string) error {
	if len(s.req.Refs) == maxRefs {
		return BadRequest(param, "array_above_max_length", "The request refers to more than %d things kept at the provider.", maxRefs)
	}
	s.req.Refs = append(s.req.Refs, Ref{Kind: kind, ID: id, Param: param})
	return nil
}

// readRef reads the id of something kept.
func readRef(kind RefKind, param string) reader {
	return func(s *scanner) error {
		id, err := s.word(param)
		if err != nil {
			return err
		}
		return s.addRef(kind, id, s.param(param))
	}
}

// walk reads any value and notes what is mentioned in it, at any depth.
func (s *scanner) walk() error {
	switch s.peek() {
	case '{':
		return s.object(s.walkMember)
	case '[':
		return s.array(func(int) error { return s.walk() })
	}
	return s.skip()
}

func (s *scanner) walkMember(name []byte) error {
	kind := RefKind("")
	switch string(name) {
	case "file_id", "file_ids":
		kind = RefFile
	case "vector_store_id", "vector_store_ids":
		kind = RefVectorStore
	case "container", "container_id":
		kind = RefContainer
	case "approval_request_id":
		kind = RefItem
	default:
		return s.walk()
	}
	param := string(name)
	switch s.peek() {
	case '"':
		return readRef(kind, param)(s)
	case '[':
		return s.array(func(int) error {
			if s.peek() == '"' {
				return readRef(kind, param)(s)
			}
			return s.walk()
		})
	}
	return s.walk()
}
