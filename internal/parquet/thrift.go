package parquet

import "encoding/binary"

// The footer and page headers are structs in Thrift's compact protocol. parquet.thrift of the
// format's repository numbers their fields and enumerations.
const (
	typeInt64     = 2
	typeByteArray = 6

	required = 0
	optional = 1

	convertedText    = 0
	convertedDecimal = 5
	convertedMillis  = 9

	encodingPlain = 0
	encodingRLE   = 3
	codecGzip     = 2
	dataPage      = 0
)

// Types of fields in the compact protocol.
const (
	fieldTrue   = 1
	fieldI32    = 5
	fieldI64    = 6
	fieldBinary = 8
	fieldList   = 9
	fieldStruct = 12
)

// compact writes structs. Fields must be written in ascending order.
type compact struct {
	out  []byte
	last []int // of the open structs, the number of the last field
}

func newCompact() *compact { return &compact{last: []int{0}} }

func (c *compact) field(number int, kind byte) {
	top := len(c.last) - 1
	c.out = append(c.out, byte(number-c.last[top])<<4|kind)
	c.last[top] = number
}

func (c *compact) varint(n int64) { c.out = binary.AppendVarint(c.out, n) }

func (c *compact) i32(number int, n int64) {
	c.field(number, fieldI32)
	c.varint(n)
}

func (c *compact) i64(number int, n int64) {
	c.field(number, fieldI64)
	c.varint(n)
}

func (c *compact) yes(number int) { c.field(number, fieldTrue) }

func (c *compact) raw(text string) {
	c.out = append(binary.AppendUvarint(c.out, uint64(len(text))), text...)
}

func (c *compact) text(number int, text string) {
	c.field(number, fieldBinary)
	c.raw(text)
}

// object writes a struct as a field.
func (c *compact) object(number int, fields func()) {
	c.field(number, fieldStruct)
	c.element(fields)
}

// element writes a struct as an element of a list.
func (c *compact) element(fields func()) {
	c.last = append(c.last, 0)
	fields()
	c.last = c.last[:len(c.last)-1]
	c.out = append(c.out, 0)
}

// list writes the head of a list of n elements; the caller writes them.
func (c *compact) list(number int, kind byte, n int) {
	c.field(number, fieldList)
	if n < 15 {
		c.out = append(c.out, byte(n)<<4|kind)
		return
	}
	c.out = binary.AppendUvarint(append(c.out, 0xf0|kind), uint64(n))
}

// pageHeader encodes a PageHeader.
func (w *Writer) pageHeader(plain, packed int) []byte {
	c := newCompact()
	c.i32(1, dataPage)
	c.i32(2, int64(plain))
	c.i32(3, int64(packed))
	c.object(5, func() {
		c.i32(1, int64(w.pending))
		c.i32(2, encodingPlain)
		c.i32(3, encodingRLE)
		c.i32(4, encodingRLE)
	})
	return append(c.out, 0)
}

// footer encodes the FileMetaData.
func (w *Writer) footer() []byte {
	c := newCompact()
	c.i32(1, 1)
	c.list(2, fieldStruct, len(w.columns)+1)
	c.element(func() {
		c.text(4, "schema")
		c.i32(5, int64(len(w.columns)))
	})
	for _, column := range w.columns {
		c.element(func() { c.schema(column) })
	}
	c.i64(3, w.rows)
	c.list(4, fieldStruct, len(w.groups))
	for _, g := range w.groups {
		c.element(func() { c.group(g, w.columns) })
	}
	if len(w.meta) > 0 {
		c.list(5, fieldStruct, len(w.meta))
		for _, pair := range w.meta {
			c.element(func() {
				c.text(1, pair[0])
				c.text(2, pair[1])
			})
		}
	}
	c.text(6, "llmguard")
	return append(c.out, 0)
}

// schema writes the SchemaElement of a column, with the older and the newer form of its type.
func (c *compact) schema(column Column) {
	kind, repetition := int64(typeInt64), int64(required)
	if column.Kind == Text {
		kind = typeByteArray
	}
	if column.Optional {
		repetition = optional
	}
	c.i32(1, kind)
	c.i32(3, repetition)
	c.text(4, column.Name)
	switch column.Kind {
	case Text:
		c.i32(6, convertedText)
		c.object(10, func() { c.object(1, func() {}) })
	case Decimal:
		c.i32(6, convertedDecimal)
		c.i32(7, int64(column.Scale))
		c.i32(8, precision)
		c.object(10, func() {
			c.object(5, func() {
				c.i32(1, int64(column.Scale))
				c.i32(2, precision)
			})
		})
	case Time:
		c.i32(6, convertedMillis)
		c.object(10, func() {
			c.object(8, func() {
				c.yes(1) // in UTC
				c.object(2, func() { c.object(1, func() {}) })
			})
		})
	}
}

// group writes a RowGroup.
func (c *compact) group(g rowGroup, columns []Column) {
	c.list(1, fieldStruct, len(columns))
	for i, column := range columns {
		at := g.chunks[i]
		kind := int64(typeInt64)
		if column.Kind == Text {
			kind = typeByteArray
		}
		c.element(func() {
			c.i64(2, at.at)
			c.object(3, func() {
				c.i32(1, kind)
				c.list(2, fieldI32, 2)
				c.varint(encodingPlain)
				c.varint(encodingRLE)
				c.list(3, fieldBinary, 1)
				c.raw(column.Name)
				c.i32(4, codecGzip)
				c.i64(5, g.rows)
				c.i64(6, at.plain)
				c.i64(7, at.packed)
				c.i64(9, at.at)
			})
		})
	}
	c.i64(2, g.bytes)
	c.i64(3, g.rows)
}
