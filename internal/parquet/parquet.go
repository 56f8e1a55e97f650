// Package parquet writes tables as Apache Parquet files: flat columns of texts, decimals and
// times, plain encoding, pages compressed with gzip. It cannot read them.
//
// The format is described at https://parquet.apache.org/docs/file-format/. A file is written front
// to back, so that it can be streamed. Memory is bounded by one row group.
package parquet

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Kind is the type of a column.
type Kind int

// Kinds of columns.
const (
	Text    Kind = iota // UTF-8
	Decimal             // DECIMAL(18, Column.Scale)
	Time                // TIMESTAMP in UTC, in milliseconds
)

// precision is the number of digits of a Decimal that is stored as a 64-bit integer.
const precision = 18

// groupRows is the number of rows of a row group.
const groupRows = 20_000

// Column describes a column. In one that is not Optional, every row needs a value.
type Column struct {
	Name     string
	Kind     Kind
	Optional bool
	Scale    int // decimals of a Decimal, 0 to 18
}

// Value is one cell; the zero Value is null.
type Value struct {
	text  string
	n     int64
	valid bool
}

// TextOf returns a Text.
func TextOf(s string) Value { return Value{text: s, valid: true} }

// DecimalOf returns a Decimal of n units of its column's last decimal.
func DecimalOf(n int64) Value { return Value{n: n, valid: true} }

// TimeOf returns a Time, cut off to milliseconds.
func TimeOf(t time.Time) Value { return Value{n: t.UnixMilli(), valid: true} }

// Null reports whether the cell has no value.
func (v Value) Null() bool { return !v.valid }

// Text returns the text of a Text.
func (v Value) Text() string { return v.text }

// Int returns the units of a Decimal, or the Unix milliseconds of a Time.
func (v Value) Int() int64 { return v.n }

// Writer writes a file. It is not safe for concurrent use.
type Writer struct {
	to      io.Writer
	columns []Column
	meta    [][2]string
	data    []columnData
	pending int // rows in data
	at      int64
	rows    int64
	groups  []rowGroup
}

// columnData are the values of the row group that is being filled.
type columnData struct {
	values  bytes.Buffer
	defined []bool
}

// rowGroup is what the footer says about a row group.
type rowGroup struct {
	rows   int64
	bytes  int64
	chunks []chunk
}

type chunk struct{ at, plain, packed int64 }

const magic = "PAR1"

// NewWriter returns a Writer of a table. The pairs of meta are stored as the file's key-value
// metadata. Nothing is written before the first Write or Close.
func NewWriter(to io.Writer, columns []Column, meta ...[2]string) *Writer {
	return &Writer{to: to, columns: columns, meta: meta, data: make([]columnData, len(columns))}
}

// Write adds a row with one value for each column.
func (w *Writer) Write(row []Value) error {
	if len(row) != len(w.columns) {
		return fmt.Errorf("parquet: a row of %d values for %d columns", len(row), len(w.columns))
	}
	for i, v := range row {
		if v.Null() && !w.columns[i].Optional {
			return fmt.Errorf("parquet: row %d has no %s", w.rows, w.columns[i].Name)
		}
	}
	for i, v := range row {
		d := &w.data[i]
		if w.columns[i].Optional {
			d.defined = append(d.defined, !v.Null())
		}
		switch {
		case v.Null():
		case w.columns[i].Kind == Text:
			d.values.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(v.text))))
			d.values.WriteString(v.text)
		default:
			d.values.Write(binary.LittleEndian.AppendUint64(nil, uint64(v.n)))
		}
	}
	w.rows++
	w.pending++
	if w.pending == groupRows {
		return w.flush()
	}
	return nil
}

// Close writes the rest and the footer. It does not close the writer below.
func (w *Writer) Close() error {
	err := w.begin()
	if err == nil && w.pending > 0 {
		err = w.flush()
	}
	if err != nil {
		return err
	}
	foot := w.footer()
	foot = binary.LittleEndian.AppendUint32(foot, uint32(len(foot)))
	return w.write(append(foot, magic...))
}

// begin writes the head of the file, once.
func (w *Writer) begin() error {
	if w.at > 0 {
		return nil
	}
	return w.write([]byte(magic))
}

func (w *Writer) write(p []byte) error {
	n, err := w.to.Write(p)
	w.at += int64(n)
	return err
}

// flush writes a row group: for each column a chunk of one page.
func (w *Writer) flush() error {
	if err := w.begin(); err != nil {
		return err
	}
	g := rowGroup{rows: int64(w.pending)}
	for i := range w.data {
		c, err := w.page(&w.data[i])
		if err != nil {
			return err
		}
		g.chunks = append(g.chunks, c)
		g.bytes += c.plain
		w.data[i].values.Reset()
		w.data[i].defined = w.data[i].defined[:0]
	}
	w.groups = append(w.groups, g)
	w.pending = 0
	return nil
}

// maxPage is the largest page that its header can describe.
const maxPage = 1<<31 - 1

// page writes the values of a column and returns where they are.
func (w *Writer) page(d *columnData) (chunk, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	levels := levelsOf(d.defined)
	_, err := z.Write(levels)
	if err == nil {
		_, err = z.Write(d.values.Bytes())
	}
	if err := errors.Join(err, z.Close()); err != nil {
		return chunk{}, err
	}
	plain := len(levels) + d.values.Len()
	if plain > maxPage || packed.Len() > maxPage {
		return chunk{}, fmt.Errorf("parquet: a page of %d bytes is too large", plain)
	}
	head := w.pageHeader(plain, packed.Len())
	c := chunk{at: w.at, plain: int64(len(head) + plain), packed: int64(len(head) + packed.Len())}
	return c, errors.Join(w.write(head), w.write(packed.Bytes()))
}

// levelsOf encodes which values are defined, as runs of equal ones with their length in front.
func levelsOf(defined []bool) []byte {
	if len(defined) == 0 {
		return nil
	}
	var runs []byte
	for begin := 0; begin < len(defined); {
		end := begin + 1
		for end < len(defined) && defined[end] == defined[begin] {
			end++
		}
		level := byte(0)
		if defined[begin] {
			level = 1
		}
		runs = append(binary.AppendUvarint(runs, uint64(end-begin)<<1), level)
		begin = end
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(runs))), runs...)
}
