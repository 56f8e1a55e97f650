package fakeprovider

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// input is one text or one list of token ids to embed.
type input struct {
	text string
	ids  []int64
}

// embeddingFields reads the fields of an embeddings request.
func (q *Request) embeddingFields() error {
	format := "float"
	err := q.read(map[string]any{"dimensions": &q.dimensions, "encoding_format": &format})
	if err != nil {
		return err
	}
	if format != "float" && format != "base64" {
		return invalid("encoding_format", "invalid_value", "Invalid value: '%s'. Supported values are: 'float' and 'base64'.",
			format)
	}
	if q.has("dimensions") && (q.dimensions < 1 || q.dimensions > dimensionsOf(q.Model)) {
		return invalid("dimensions", "integer_out_of_range", "Invalid 'dimensions': expected 1 to %d, but got %d instead.",
			dimensionsOf(q.Model), q.dimensions)
	}
	q.dimensions = cmp.Or(q.dimensions, dimensionsOf(q.Model))
	q.base64 = format == "base64"
	return q.readInputs()
}

// readInputs accepts string, string[], int[] and int[][].
func (q *Request) readInputs() error {
	raw := q.fields["input"]
	var (
		one   string
		many  []string
		ids   []int64
		lists [][]int64
	)
	switch {
	case !q.has("input"):
		return invalid("input", "missing_required_parameter", "Missing required parameter: 'input'.")
	case json.Unmarshal(raw, &one) == nil:
		q.inputs = []input{{text: one}}
	case json.Unmarshal(raw, &many) == nil:
		for _, t := range many {
			q.inputs = append(q.inputs, input{text: t})
		}
	case json.Unmarshal(raw, &ids) == nil:
		q.inputs = []input{{ids: ids}}
	case json.Unmarshal(raw, &lists) == nil:
		for _, l := range lists {
			q.inputs = append(q.inputs, input{ids: l})
		}
	default:
		return invalid("input", "invalid_type", "Invalid 'input': expected a string, an array of strings, or token ids.")
	}
	return q.checkInputs()
}

func (q *Request) checkInputs() error {
	if n := len(q.inputs); n < 1 || n > 2048 {
		return invalid("input", "", "'$.input' is invalid. Expected 1 to 2048 inputs, but got %d.", n)
	}
	chars, ids := 0, 0
	var text strings.Builder
	for _, in := range q.inputs {
		if in.text == "" && len(in.ids) == 0 {
			return invalid("input", "", "'$.input' is invalid: an input may not be empty.")
		}
		chars += utf8.RuneCountInString(in.text)
		ids += len(in.ids)
		text.WriteString(in.text)
		text.WriteByte('\n')
	}
	q.UserText = text.String()
	q.Requested = max(int64(chars+3)/4+int64(ids), 1)
	return nil
}

func dimensionsOf(model string) int {
	if strings.Contains(model, "3-large") {
		return 3072
	}
	return 1536
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // floats, or their bytes in base64
}

var _ = post("/v1/embeddings", answerEmbeddings)

// answerEmbeddings answers POST /v1/embeddings.
func answerEmbeddings(x *exchange) error {
	err := x.admit(x.q.embeddingFields)
	if err != nil || x.opening() {
		return err
	}
	model := cmp.Or(x.b.Model, x.q.Model)
	x.s.log.update(x.rec, func(rec *Record) { rec.AnswerModel = model })
	var used Usage
	data := make([]embedding, 0, len(x.q.inputs))
	for i, in := range x.q.inputs {
		used.Prompt += int64(len(in.ids)) + countText(x.q.Model, in.text)
		data = append(data, embedding{"embedding", i, x.q.encoded(x.s.vector(x.q, in))})
	}
	x.used(used)
	if !x.s.sleep(x.ctx, x.pace(0)) {
		x.abandon()
		return nil
	}
	body := map[string]any{"object": "list", "data": data, "model": model}
	x.addUsage(body, embeddingUsage(used))
	x.finish(encode(body))
	return nil
}

// vector returns a unit vector that depends only on the input.
func (s *Server) vector(q *Request, in input) []float32 {
	rng := newRand(s.opts.Seed, q.Model, in.text, in.ids)
	v := make([]float64, q.dimensions)
	var square float64
	for i := range v {
		v[i] = rng.NormFloat64()
		square += v[i] * v[i]
	}
	out := make([]float32, len(v))
	for i := range v {
		out[i] = float32(v[i] / math.Sqrt(square))
	}
	return out
}

func (q *Request) encoded(v []float32) any {
	if !q.base64 {
		return v
	}
	raw := make([]byte, 0, 4*len(v))
	for _, f := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// defaultModels are listed when Options.Models is nil.
var defaultModels = []string{
	"gpt-6-sol", "gpt-6-luna", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-4.1", "gpt-4.1-mini",
	"gpt-4o", "gpt-4o-mini", "o3", "o4-mini", "text-embedding-3-small", "text-embedding-3-large",
}

func (x *exchange) listed() []string {
	switch {
	case x.s.opts.Models != nil:
		return x.s.opts.Models
	case x.claude:
		return claudeModels
	}
	return defaultModels
}

// knows reports whether a model may be called.
func (s *Server) knows(model string) bool {
	return s.opts.Models == nil || slices.Contains(s.opts.Models, model)
}

// listModels answers GET /v1/models.
func listModels(x *exchange) error {
	list := make([]any, 0, len(x.listed()))
	for _, id := range x.listed() {
		list = append(list, x.model(id))
	}
	if !x.claude {
		return x.show(map[string]any{"object": "list", "data": list}, false)
	}
	page := pageOf(x.r, list, 1000, func(m any) string { return m.(map[string]any)["id"].(string) })
	delete(page, "object")
	return x.show(page, false)
}

// showModel answers GET /v1/models/{id}; ids may contain slashes.
func showModel(x *exchange) error {
	id := strings.TrimPrefix(x.r.URL.Path, "/v1/models/")
	if !slices.Contains(x.listed(), id) {
		return noModel(id)
	}
	return x.show(x.model(id), false)
}

// model returns a model in the format of the API that was called.
func (x *exchange) model(id string) any {
	if x.claude {
		return map[string]any{
			"id": id, "type": "model", "display_name": id, "created_at": "2026-01-01T00:00:00Z",
			"max_input_tokens": 1_000_000, "max_tokens": 128_000,
		}
	}
	return map[string]any{"id": id, "object": "model", "created": 1715367049, "owned_by": "system"}
}
