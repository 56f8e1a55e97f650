package wire

// Rerank is the endpoint that orders documents by their relevance to a query.
const Rerank Endpoint = "rerank"

var _ = endpoint(Rerank, Traits{
	Path: "/rerank", Aliases: []string{"/v2/rerank"}, Batched: true, Foreign: true, Reusable: true, fields: rerankFields,
	content: []string{"results", "data"}, complete: ranks,
	AnswerBytes: func(r *Request) int64 { return int64(len(r.Body)) + int64(r.InputItems)*160 },
})

// rerankFields are the members of Cohere's, Jina's and Voyage's requests. The documents are the
// Request's Inputs, one Text each, and the query is Beside them.
var rerankFields = newFields(map[string]reader{
	"model":              readModel,
	"query":              readSpan("query", func(s *scanner) *Span { return &s.req.Beside }),
	"documents":          readDocuments,
	"top_n":              readSize("top_n"),
	"top_k":              readSize("top_k"),
	"max_tokens_per_doc": readSize("max_tokens_per_doc"),
	"max_chunks_per_doc": readSize("max_chunks_per_doc"),
}, readUnknown, "priority rank_fields return_documents truncate_prompt_tokens truncation user")

// readSize checks a count that is forwarded; Request.Member has its value.
func readSize(param string) reader {
	return readInt(param, 1, maxInt, func(*scanner) *int64 { return new(int64) })
}

func readDocuments(s *scanner) error {
	if s.peek() != '[' {
		return s.wrongType("documents", "an array of strings or objects")
	}
	err := s.array(func(i int) error {
		s.index[0] = i
		switch s.peek() {
		case '"':
			return readOneInput(s, "documents")
		case '{':
			start := s.pos
			if err := s.members("documents[]", documentFields); err != nil {
				return err
			}
			s.req.Inputs = append(s.req.Inputs, Text{KindOther, Span{start, s.pos}})
			return s.req.addItem("documents")
		}
		return s.wrongType("documents[]", "a string or an object")
	})
	if err == nil && s.req.InputItems == 0 {
		return empty("documents")
	}
	return err
}

// documentFields are the members of a document that have no text. All others count as its text.
var documentFields = newFields(map[string]reader{
	"content":   readPicture("content"),
	"image":     readPicture("image"),
	"image_url": readPicture("image_url"),
	"video":     readPicture("video"),
}, nil)

// readPicture refuses what is not text, because no price says what it costs.
func readPicture(name string) reader {
	return func(s *scanner) error {
		if s.peek() == '"' && name == "content" {
			return s.skip()
		}
		return BadRequest(s.param("documents[]."+name), "unsupported_parameter",
			"Unsupported parameter: '%s'. Only the text of documents can be ranked, because the cost of images cannot be "+
				"reserved. Send a string, or an object with text.", s.param("documents[]."+name))
	}
}

// ranks checks that there are a query and documents.
func ranks(s *scanner) error {
	if s.req.Beside.Len() <= len(`""`) {
		return missing("query")
	}
	return needs("documents")(s)
}
