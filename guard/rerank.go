package guard

import (
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

var _ = metered(meter{input: (*estimator).ranked}, wire.Rerank)

const (
	// pairTokens is what a provider adds to each document and the query: separators, or the prompt of
	// a model that generates its verdict.
	pairTokens = 80
	// chunkTokens is how many tokens a document may have, with the query, before it counts as several,
	// and unitChunks how many are one search unit.
	chunkTokens = 500
	unitChunks  = 100
	// leastRoom is the least that we expect a chunk to have beside a long query, in tokens.
	leastRoom = 10
	// readTokens is how much of a document is read if the request does not say.
	readTokens = 4096
)

// ranked counts the input of a reranking: every document is read with the query. If its price counts
// search units, it fills in how many the plan holds.
func (e *estimator) ranked() (int64, error) {
	p := e.plan
	r := p.sent
	c := counter{cache: e.counts, enc: tokenizer.EncodingFor(p.Target.Model), request: r}
	c.fixed = pairTokens * int64(r.InputItems)
	n, err := e.inputs(&c)
	if r.Member("max_tokens_per_doc") != nil || r.Member("truncate_prompt_tokens") != nil { // it may read less
		p.text.certain = 0
	}
	if p.Price.PerSearchUnit() {
		p.units = units{least: unitsOf(int64(r.InputItems)), most: unitsOf(e.chunks(&c))}
	}
	return n, err
}

// unitsOf returns the search units of a number of chunks.
func unitsOf(chunks int64) int64 { return (chunks + unitChunks - 1) / unitChunks }

// chunks returns the most chunks that the documents of a request count as.
func (e *estimator) chunks(c *counter) (total int64) {
	r, model := c.request, e.plan.Target.Model
	tokens := func(t wire.Text) int64 {
		plain, scratch := r.Plain(c.scratch, t)
		c.scratch = scratch
		_, most := tokenizer.Estimate(model, c.cache.CountClasses(c.enc, plain))
		return int64(most)
	}
	read, err := strconv.ParseInt(string(r.Member("max_tokens_per_doc")), 10, 64)
	if err != nil {
		read = readTokens
	}
	query := tokens(wire.Text{Kind: wire.KindInput, Span: r.Beside})
	room := max(chunkTokens-query, leastRoom)
	for _, t := range r.Inputs {
		total += max((min(tokens(t), read)+room-1)/room, 1)
	}
	return total
}
