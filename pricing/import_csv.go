package pricing

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// csvColumns are the columns of a price list in CSV, starting with the required ones. Prices are
// USD per 1M tokens, limits are tokens.
var csvColumns = []string{
	"model", "provider", "input", "output", "cached_input", "cache_write", "cache_write_1h", "per_request",
	"per_tool_call", "per_search_unit",
	"context_over", "effective_from", "context", "max_output", "as_of", "note",
}

const csvNeeded = 4

// ImportCSV reads a price list in CSV with a header. Each line is one price of a model; lines of
// the same model and provider differ in context_over or effective_from.
func ImportCSV(from io.Reader) (*Feed, error) {
	in := csv.NewReader(io.LimitReader(from, maxFeed))
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("pricing: csv: %w", err)
	}
	for _, name := range head {
		if !slices.Contains(csvColumns, name) {
			return nil, fmt.Errorf("pricing: csv: unknown column %.40q; expected any of %s", name,
				strings.Join(csvColumns, ", "))
		}
	}
	for _, name := range csvColumns[:csvNeeded] {
		if !slices.Contains(head, name) {
			return nil, fmt.Errorf("pricing: csv: no column %s", name)
		}
	}
	var list []Entry
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("pricing: csv: %w", err)
		}
		one, err := csvEntry(head, cells)
		if err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("pricing: csv: line %d: %w", line, err)
		}
		same := func(e Entry) bool { return e.Model == one.Model && e.Provider == one.Provider }
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].Prices = append(list[i].Prices, one.Prices...)
		} else {
			list = append(list, one)
		}
	}
	r := newFeedReader("csv")
	for _, e := range list {
		r.add(e)
	}
	return &r.feed, nil
}

// csvEntry returns the entry of one line, with one price.
func csvEntry(head, cells []string) (Entry, error) {
	e, row := Entry{}, Row{}
	for i, name := range head {
		text := strings.TrimSpace(cells[i])
		if text == "" {
			continue
		}
		if err := setColumn(&e, &row, name, text); err != nil {
			return e, fmt.Errorf("%s: %w", name, err)
		}
	}
	e.Prices = []Row{row}
	return e, nil
}

func setColumn(e *Entry, row *Row, name, text string) (err error) {
	rate := row.Rates.field(name)
	tokens := map[string]*int64{"context_over": &row.ContextOver, "context": &e.Context, "max_output": &e.MaxOutput}
	dates := map[string]*time.Time{"effective_from": &row.EffectiveFrom, "as_of": &e.AsOf}
	texts := map[string]*string{"model": &e.Model, "provider": &e.Provider, "note": &e.Note}
	switch {
	case rate.digits == tokenDigits:
		*rate.rate, err = PerMillion(text)
	case rate.digits == feeDigits:
		*rate.rate, err = PerCall(text)
	case tokens[name] != nil:
		*tokens[name], err = strconv.ParseInt(text, 10, 64)
	case dates[name] != nil:
		*dates[name], err = parseDate(text)
	default:
		*texts[name] = text
	}
	return err
}
