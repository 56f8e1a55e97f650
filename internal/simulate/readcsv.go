package simulate

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// readCSV reads the output of `usage export -o csv`; columns are identified by name.
func (r *Reader) readCSV(ctx context.Context, name string, in io.Reader) error {
	table := csv.NewReader(in)
	table.ReuseRecord = true
	head, err := table.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	at := map[string]int{}
	for i, column := range head {
		at[column] = i
	}
	for _, column := range []string{
		"time", "org", "user", "model", "kind", "id", "total_usd", "input_tokens",
		"output_tokens",
	} {
		if _, ok := at[column]; !ok {
			return fmt.Errorf("%s: neither JSON lines nor CSV of `llmguard usage export`: it has no column %s", name, column)
		}
	}
	for n := 1; ; n++ {
		row, err := table.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && n%lotLines == 0:
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c := csvRow{row: row, at: at}
		err = r.row(&c)
		if err != nil {
			line, _ := table.FieldPos(0) // cells may contain line breaks
			return fmt.Errorf("%s: line %d: %w", name, line, err)
		}
	}
}

// row adds a row if all of its cells can be parsed.
func (r *Reader) row(c *csvRow) error {
	l := c.line()
	if c.err != nil {
		return c.err
	}
	return r.entry(l)
}

// csvRow parses the cells of a row; err is the first error.
type csvRow struct {
	row []string
	at  map[string]int
	err error
}

func (c *csvRow) text(column string) string {
	i, ok := c.at[column]
	if !ok || i >= len(c.row) {
		return ""
	}
	text := c.row[i]
	if len(text) > 1 && text[0] == '\'' && strings.ContainsRune("=+-@\t\r\n", rune(text[1])) {
		return text[1:] // the escape for spreadsheets
	}
	return text
}

func (c *csvRow) number(column string) int64 {
	text := c.text(column)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("column %s: %w", column, err)
	}
	return n
}

func (c *csvRow) money(column string) int64 {
	text := c.text(column)
	if text == "" {
		return 0
	}
	amount, negative := strings.CutPrefix(text, "-") // negative in corrections
	n, err := pricing.ParseUSD(amount)
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("column %s: %w", column, err)
	}
	if negative {
		return -int64(n)
	}
	return int64(n)
}

func (c *csvRow) line() *line {
	l := &line{
		ID: c.text("id"), Attempt: int(c.number("attempt")), Org: c.text("org"), User: c.text("user"), Key: c.text("key"),
		IP: c.text("ip"), Model: c.text("model"), Provider: c.text("provider"), Endpoint: c.text("endpoint"),
		Kind: c.text("kind"),
		Cost: c.money("cost_usd"), Total: c.money("total_usd"), Overrun: c.money("overrun_usd"),
		Waited: c.number("waited_ms"), Took: c.number("took_ms"), Held: c.money("held_usd"),
		HeldTokens: c.number("held_tokens"),
		HeldUS:     c.number("held_us"), QuotaTokens: c.number("quota_tokens"), Class: c.text("class"),
		Stream: c.text("stream") == "true", Labels: recordedLabels(c.text("labels")),
		Request: c.text("request"), Run: ledger.RunPath(c.text("run")),
		Usage: tokensOfUsage{c.number("input_tokens"), c.number("output_tokens")},
	}
	at, err := time.Parse(time.RFC3339Nano, c.text("time"))
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("column time: %w", err)
	}
	l.At = at
	return l
}
