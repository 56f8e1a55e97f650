// Package finance tests exports for accountants with other programs' readers.
package finance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	reader "github.com/parquet-go/parquet-go"

	"github.com/llmguard/llmguard/internal/parquet"
)

var schema = []parquet.Column{
	{Name: "Name", Kind: parquet.Text},
	{Name: "Note", Kind: parquet.Text, Optional: true},
	{Name: "Cost", Kind: parquet.Decimal, Scale: 9},
	{Name: "Count", Kind: parquet.Decimal, Optional: true},
	{Name: "Start", Kind: parquet.Time},
	{Name: "Never", Kind: parquet.Time, Optional: true},
}

// randomRows returns rows with texts of all sorts, negative amounts and nulls.
func randomRows(n int) [][]parquet.Value {
	rng := rand.New(rand.NewPCG(3, 4))
	texts := []string{"", "plain", "ä,\"b\"\n", "日本語"}
	rows := make([][]parquet.Value, n)
	for i := range rows {
		row := []parquet.Value{
			parquet.TextOf(fmt.Sprint(i, texts[rng.IntN(len(texts))])),
			{},
			parquet.DecimalOf(rng.Int64N(1<<60) - 1<<59),
			{},
			parquet.TimeOf(time.UnixMilli(rng.Int64N(1 << 42))),
			{},
		}
		if rng.IntN(3) > 0 {
			row[1] = parquet.TextOf(texts[rng.IntN(len(texts))])
		}
		if i > n/2 { // a long run of nulls, and one of values
			row[3] = parquet.DecimalOf(int64(i))
		}
		rows[i] = row
	}
	return rows
}

// TestParquetIsRead: a reader that is not ours finds the same values, nulls and types, in several
// row groups.
func TestParquetIsRead(t *testing.T) {
	for _, n := range []int{0, 1, 20_000, 45_001} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rows := randomRows(n)
			var out bytes.Buffer
			w := parquet.NewWriter(&out, schema, [2]string{"month", "2026-11"})
			for _, row := range rows {
				if err := w.Write(row); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			f := open(t, out.Bytes())
			if got, want := len(f.RowGroups()), (n+19_999)/20_000; got != want {
				t.Errorf("got %d row groups, want %d", got, want)
			}
			if month, _ := f.Lookup("month"); month != "2026-11" {
				t.Errorf("got the month %q in the metadata, want 2026-11", month)
			}
			compare(t, readAll(t, f), rows)
		})
	}
}

// TestParquetTypes: the reader sees the types that FOCUS wants.
func TestParquetTypes(t *testing.T) {
	var out bytes.Buffer
	if err := parquet.NewWriter(&out, schema).Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, field := range open(t, out.Bytes()).Schema().Fields() {
		got = append(got, fmt.Sprint(field.Name(), " ", field.Type(), " ", field.Optional()))
	}
	want := []string{
		"Cost DECIMAL(18,9) false", "Count DECIMAL(18,0) true", "Name STRING false",
		"Never TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS) true", "Note STRING true",
		"Start TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS) false",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got the fields\n%q, want\n%q", got, want)
	}
}

func open(t *testing.T, file []byte) *reader.File {
	t.Helper()
	f, err := reader.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// readAll returns the rows of all groups, with the values in the order of columns.
func readAll(t *testing.T, f *reader.File) [][]reader.Value {
	t.Helper()
	var out [][]reader.Value
	for _, group := range f.RowGroups() {
		rows := group.Rows()
		buffer := make([]reader.Row, 1000)
		for {
			n, err := rows.ReadRows(buffer)
			for _, row := range buffer[:n] {
				own := make([]reader.Value, len(row))
				for _, v := range row {
					own[v.Column()] = v.Clone()
				}
				out = append(out, own)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func compare(t *testing.T, got [][]reader.Value, want [][]parquet.Value) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d rows, want %d", len(got), len(want))
	}
	for i, row := range want {
		for k, v := range row {
			read := got[i][k]
			same := read.IsNull() == v.Null()
			switch {
			case !same || v.Null():
			case schema[k].Kind == parquet.Text:
				same = string(read.ByteArray()) == v.Text()
			default:
				same = read.Int64() == v.Int()
			}
			if !same {
				t.Fatalf("row %d, %s: got %v, want %+v", i, schema[k].Name, read, v)
			}
		}
	}
}
