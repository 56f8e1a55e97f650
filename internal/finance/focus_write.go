package finance

import (
	"io"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/parquet"
	"github.com/llmguard/llmguard/pricing"
)

// divided returns n*times/by, rounded to the nearest integer, halves away from zero.
func divided(n, times, by int64) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(2*times))
	if n < 0 {
		product.Sub(product, big.NewInt(by))
	} else {
		product.Add(product, big.NewInt(by))
	}
	return product.Quo(product, big.NewInt(2*by)).Int64()
}

// Version is the version of the specification that exports conform to.
const Version = "1.2"

// WriteParquet writes the export as a Parquet file. Costs, prices and quantities are
// DECIMAL(18, 9), counts DECIMAL(18, 0), texts UTF-8, times TIMESTAMP in milliseconds.
func (f *Focus) WriteParquet(to io.Writer) error {
	columns := focusColumns()
	schema := make([]parquet.Column, len(columns))
	for i, c := range columns {
		schema[i] = c.Column
	}
	provisional := "false"
	if f.Provisional() {
		provisional = "true"
	}
	w := parquet.NewWriter(to, schema, [][2]string{
		{"focus_version", Version},
		{"data_generator", "llmguard"},
		{"org", f.Org},
		{"month", f.Month.String()},
		{"created", f.At.UTC().Format(time.RFC3339)},
		{"provisional", provisional},
		{"incomplete", f.Incomplete()},
	}...)
	err := f.each(columns, w.Write)
	if err != nil {
		return err
	}
	return w.Close()
}

// WriteCSV writes the export as CSV with a header (RFC 4180, with line feeds). Nulls are empty
// cells.
func (f *Focus) WriteCSV(to io.Writer) error {
	columns := focusColumns()
	w := escape.NewCSV(to)
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.Name
	}
	_ = w.Write(cells) // Flush reports the error
	err := f.each(columns, func(row []parquet.Value) error {
		for i, v := range row {
			cells[i] = csvCell(columns[i].Column, v)
		}
		return w.Write(cells)
	})
	if err != nil {
		return err
	}
	w.Flush()
	return w.Error()
}

// each calls fn with the cells of every row. The slice is reused.
func (f *Focus) each(columns []focusColumn, fn func([]parquet.Value) error) error {
	row := make([]parquet.Value, len(columns))
	for i := range f.rows {
		for k, c := range columns {
			row[k] = c.cell(&f.rows[i])
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return nil
}

// csvCell formats a cell. A text that a spreadsheet would run as a formula gets an apostrophe.
func csvCell(column parquet.Column, v parquet.Value) string {
	switch {
	case v.Null():
		return ""
	case column.Kind == parquet.Decimal && column.Scale == 0:
		return strconv.FormatInt(v.Int(), 10)
	case column.Kind == parquet.Decimal:
		return decimalText(v.Int())
	case column.Kind == parquet.Time:
		return time.UnixMilli(v.Int()).UTC().Format(time.RFC3339)
	}
	return budget.CellText(v.Text())
}

// decimalText formats units of 1e-9 without trailing zeros: "0.00006135", "1200", "-1.2".
func decimalText(n int64) string {
	return strings.TrimSuffix(strings.TrimRight(string(pricing.Nano(n).AppendUSD(nil)), "0"), ".")
}
