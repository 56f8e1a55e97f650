package fakeprovider

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	_ = post("/v1/rerank", answerRerank)
	_ = post("/v2/rerank", answerRerank)
)

// rerankForm is what a reranking asks for.
type rerankForm struct {
	query     string
	documents []string
	top       int
	perDoc    int64
}

// rerankFields reads the fields of a rerank request.
func (q *Request) rerankFields(f *rerankForm) error {
	var documents []json.RawMessage
	err := q.read(map[string]any{
		"query": &f.query, "documents": &documents, "top_n": &f.top, "top_k": &f.top, "max_tokens_per_doc": &f.perDoc,
	})
	if err != nil {
		return err
	}
	if f.query == "" || len(documents) == 0 {
		return invalid("", "", "invalid request: query and documents must not be empty")
	}
	for _, raw := range documents {
		var text string
		var object struct{ Text string }
		if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &object) == nil {
			text = object.Text
		}
		f.documents = append(f.documents, text)
	}
	q.UserText = f.query
	q.Requested = int64(utf8.RuneCountInString(f.query+strings.Join(f.documents, ""))+3) / 4
	return nil
}

// cohere reports whether the request is answered in Cohere's form, which counts search units.
func (q *Request) cohere(path string) bool {
	return strings.HasPrefix(path, "/v2/") || strings.HasPrefix(q.Model, "rerank-v")
}

// answerRerank answers POST /v2/rerank like Cohere, and /v1/rerank like Jina, or like Voyage if the
// request has top_k. A document scores by how many words of the query it has.
func answerRerank(x *exchange) error {
	var f rerankForm
	err := x.admit(func() error { return x.q.rerankFields(&f) })
	if err != nil || x.opening() {
		return err
	}
	type result struct {
		Index int     `json:"index"`
		Score float64 `json:"relevance_score"`
	}
	var results []result
	query := countText(x.q.Model, f.query)
	used, chunks := Usage{Prompt: query * int64(len(f.documents))}, int64(0)
	words := strings.Fields(f.query)
	for i, text := range f.documents {
		tokens := countText(x.q.Model, text)
		used.Prompt += tokens
		if f.perDoc > 0 {
			tokens = min(tokens, f.perDoc)
		}
		room := max(500-query, 125)
		chunks += max((min(tokens, 4096)+room-1)/room, 1)
		found := 0
		for _, word := range words {
			if strings.Contains(text, word) {
				found++
			}
		}
		results = append(results, result{i, float64(found) / float64(len(words)+1)})
	}
	slices.SortStableFunc(results, func(a, b result) int { return int((b.Score - a.Score) * 1e6) })
	if f.top > 0 {
		results = results[:min(f.top, len(results))]
	}
	x.used(used)
	if !x.s.sleep(x.ctx, x.pace(0)) {
		x.abandon()
		return nil
	}
	body := map[string]any{"model": x.q.Model, "results": results}
	if x.q.has("top_k") {
		body = map[string]any{"object": "list", "model": x.q.Model, "data": results}
	}
	if raw := x.usage(embeddingUsage(used)); raw != nil && !x.q.cohere(x.r.URL.Path) {
		body["usage"] = raw
	} else if raw != nil {
		body = map[string]any{"id": newID("rerank-"), "results": results, "meta": map[string]any{
			"api_version":  map[string]string{"version": "2"},
			"billed_units": map[string]int64{"search_units": (chunks + 99) / 100},
		}}
	}
	x.finish(encode(body))
	return nil
}
