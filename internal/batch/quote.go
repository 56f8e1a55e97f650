package batch

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// Quote is what a file of requests would cost.
type Quote struct {
	Models []ModelQuote // by name
	Total  ModelQuote
	// Problems are the errors in the file, up to 100. Lines with an error are not
	// counted.
	Problems []Problem
}

// ModelQuote is what the requests for one model would cost.
type ModelQuote struct {
	Model    string `json:"model,omitempty"`
	Requests int64  `json:"requests"`
	Input    int64  `json:"input_tokens"`      // as held: for known tokenizers never fewer than are billed
	Output   int64  `json:"max_output_tokens"` // the most the provider may generate
	// Expected is the probable cost, Most the upper bound, which is held.
	Expected pricing.Nano `json:"-"`
	Most     pricing.Nano `json:"-"`
}

func (q *ModelQuote) add(p *guard.Plan, expected pricing.Nano) {
	q.Requests++
	q.Input += p.Input
	q.Output += p.Output
	q.Expected += expected
	q.Most += p.Max.Cost
}

// QuoteOptions configure Estimate. Plans is required.
type QuoteOptions struct {
	Plans  *guard.Planner
	Caller guard.Caller
	// Scan and MaxLine are as in Options.
	Scan    wire.Limits
	MaxLine int
}

// Estimate prices the lines of a file before it is uploaded, in constant memory except for
// one hash per line. Lines may be for any of the endpoints and for several models. The
// error is a read error.
func Estimate(file io.Reader, o QuoteOptions) (*Quote, error) {
	most := Options{MaxLine: o.MaxLine}.withDefaults().MaxLine
	r := &lineReader{buf: bufio.NewReaderSize(file, readAhead), most: most}
	q := &Quote{}
	seen := make(map[[16]byte]int)
	byModel := make(map[string]*ModelQuote)
	for len(q.Problems) < maxProblems {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, errLong) {
			return nil, fmt.Errorf("batch: read: %w", err)
		}
		wrong := problem("line_too_large", "", fmt.Sprintf("The line has more than %d bytes.", most))
		if err == nil {
			wrong = q.price(line, r.at.line, o, seen, byModel)
		}
		if wrong != nil {
			number := r.at.line
			wrong.Line = &number
			q.Problems = append(q.Problems, *wrong)
		}
	}
	for _, m := range byModel {
		q.Models = append(q.Models, *m)
	}
	slices.SortFunc(q.Models, func(a, b ModelQuote) int { return strings.Compare(a.Model, b.Model) })
	if q.Total.Requests == 0 && len(q.Problems) == 0 {
		q.Problems = []Problem{*problem("empty_file", "", "The file is empty. It must contain at least one request.")}
	}
	return q, nil
}

// price adds one line, or returns what is wrong with it.
func (q *Quote) price(line []byte, number int, o QuoteOptions, seen map[[16]byte]int,
	byModel map[string]*ModelQuote,
) *Problem {
	req, wrong := parse(line, "", o.Scan)
	if wrong != nil {
		return wrong
	}
	wrong = once(seen, req.customID, number)
	if wrong != nil {
		return wrong
	}
	plan, err := o.Plans.Prepare(o.Caller, req.parsed)
	if err != nil {
		return problemOf(err, "invalid_request")
	}
	m := byModel[req.model]
	if m == nil {
		m = &ModelQuote{Model: req.model}
		byModel[req.model] = m
	}
	expected := o.Plans.Expected(plan).Cost
	m.add(plan, expected)
	q.Total.add(plan, expected)
	return nil
}

// once returns a problem if an earlier line has the same custom_id.
func once(seen map[[16]byte]int, customID string, number int) *Problem {
	sum := sha256.Sum256([]byte(customID))
	hash := [16]byte(sum[:16])
	if first, twice := seen[hash]; twice {
		return problem("duplicate_custom_id", "custom_id",
			fmt.Sprintf("The custom_id of this line is already used on line %d.", first))
	}
	seen[hash] = number
	return nil
}

func sameModel(first, model string) *Problem {
	if model == first {
		return nil
	}
	return problem("model_mismatch", "body.model",
		fmt.Sprintf("All lines must use the same model; this line uses %.100q, the first line %.100q.", model, first))
}
