package responses

import (
	"io"

	"github.com/llmguard/llmguard/internal/chat"
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// ChatRequest, Answer and Stream translate as calls do whose provider supports only chat completions.

func ChatRequest(r *wire.Request, o Options, limitField string) ([]byte, error) {
	o.Lacks = chat.Lacks
	q, err := Request(r, o)
	if err != nil {
		return nil, err
	}
	return chat.Body(q, limitField, o.Size(r))
}

func Answer(document []byte, r Reply) ([]byte, error) {
	w := NewWriter(r, false)
	return neutral.Whole(document, chat.NewReader(w), w)
}

func Stream(src io.Reader, r Reply) *neutral.Stream {
	w := NewWriter(r, true)
	return &neutral.Stream{Source: src, From: chat.NewReader(w), To: w}
}
