package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A record on disk: magic, length of the body, checksum of length and body, then the body:
// operation (1 put, 2 delete), length of the id, id, data.
const (
	magic    = "LGj1"
	headSize = len(magic) + 4 + 4
	bodyMin  = 1 + 2

	maxID   = 1<<16 - 1
	maxData = 1 << 20

	doPut    = 1
	doDelete = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func recordSize(id string, data []byte) int { return headSize + bodyMin + len(id) + len(data) }

func appendRecord(b []byte, o op) []byte {
	what, data := byte(doPut), o.data
	if o.delete {
		what, data = doDelete, nil
	}
	start := len(b)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(bodyMin+len(o.id)+len(data)))
	b = append(b, 0, 0, 0, 0)
	b = append(b, what)
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.id)))
	b = append(append(b, o.id...), data...)
	binary.BigEndian.PutUint32(b[start+8:], checksum(b[start:]))
	return b
}

// checksum covers the length and the body of a record.
func checksum(record []byte) uint32 {
	sum := crc32.Update(0, castagnoli, record[4:8])
	return crc32.Update(sum, castagnoli, record[headSize:])
}

// readRecord decodes the record at the start of b and returns its size; 0 if there is no complete
// one.
func readRecord(b []byte) (op, int) {
	if len(b) < headSize+bodyMin || string(b[:4]) != magic {
		return op{}, 0
	}
	body := int64(binary.BigEndian.Uint32(b[4:8]))
	size := int64(headSize) + body
	if body < bodyMin || body > bodyMin+maxID+maxData || size > int64(len(b)) {
		return op{}, 0
	}
	b = b[:size]
	idLen := int(binary.BigEndian.Uint16(b[headSize+1:]))
	if checksum(b) != binary.BigEndian.Uint32(b[8:headSize]) || bodyMin+idLen > int(body) {
		return op{}, 0
	}
	id := b[headSize+bodyMin:][:idLen]
	o := op{id: string(id), delete: b[headSize] == doDelete}
	if !o.delete {
		o.data = bytes.Clone(b[headSize+bodyMin+idLen:])
	}
	return o, int(size)
}

// parse decodes all complete records of a file and returns how many bytes belong to none. It
// continues after damaged ones.
func parse(text []byte) (ops []op, skipped int) {
	for len(text) > 0 {
		o, n := readRecord(text)
		if n > 0 {
			ops, text = append(ops, o), text[n:]
			continue
		}
		next := bytes.Index(text[1:], []byte(magic))
		if next < 0 {
			return ops, skipped + len(text)
		}
		skipped += next + 1
		text = text[next+1:]
	}
	return ops, skipped
}
