package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// trie finds the longest token at the start of a text. It is a double array: the child of a node by
// byte b is the cell base^b, if that cell is marked as such. No two nodes have the same base, so
// the byte alone identifies the parent of a cell.
type trie struct {
	cells  []uint64 // base<<37 | used<<36 | byte<<28 | token+1, which is 0 without one
	root   uint64   // as a cell
	prefix []uint32 // longest proper prefix that is a token, per rank; itself without one
}

const (
	trieUsed  = 1 << (tokenBits + 8)
	trieByte  = trieUsed | 0xFF<<tokenBits
	trieBase  = tokenBits + 9
	trieBlock = 256 // children of a node are in one block of cells
)

// longest returns the longest token at the start of p and its length. p must not be empty.
func (t *trie) longest(p []byte) (token uint32, size int) {
	cells, node := t.cells, t.root
	last := uint64(0)
	for i, b := range p {
		at := node>>trieBase ^ uint64(b)
		if at >= uint64(len(cells)) {
			break
		}
		node = cells[at]
		if node&trieByte != trieUsed|uint64(b)<<tokenBits {
			break
		}
		if token := node & (1<<tokenBits - 1); token != 0 {
			last, size = token, i+1
		}
	}
	return uint32(last - 1), size
}

// trieBuilder places nodes into blocks. Block 0 stays empty, because the children of leaves would
// be there.
type trieBuilder struct {
	blob   []byte
	tokens []trieToken // in order of their bytes
	prefix []uint32
	cells  []uint64
	taken  []uint64 // bitmap of cells
	based  []uint64 // bitmap of bases
	free   []int    // cells per block
	open   []int    // blocks with free cells
	labels []byte
}

type trieToken struct {
	head           uint64 // first eight bytes, big-endian, to sort without reading the rest
	start, end, id uint32
}

// newTrie builds the trie of the tokens in blob, whose ends are given in order of their ids.
func newTrie(blob []byte, ends []uint32) *trie {
	b := &trieBuilder{blob: blob, tokens: sortTokens(blob, ends), prefix: make([]uint32, len(ends))}
	b.grow()
	b.open = b.open[:0]
	var root uint64
	b.place(&root, 0, len(b.tokens), 0, none)
	s := newSlab(8 * len(b.cells))
	cells := carve[uint64](s, len(b.cells))
	copy(cells, b.cells)
	return &trie{cells, root, b.prefix}
}

// sortTokens returns the tokens in order of their bytes.
func sortTokens(blob []byte, ends []uint32) []trieToken {
	var first [257]uint32 // by first byte
	tokens := make([]trieToken, len(ends))
	start := uint32(0)
	for _, end := range ends {
		first[int(blob[start])+1]++
		start = end
	}
	for b := range 256 {
		first[b+1] += first[b]
	}
	next, start := first, uint32(0)
	for id, end := range ends {
		var head [8]byte
		copy(head[:], blob[start:end])
		at := &next[blob[start]]
		tokens[*at] = trieToken{binary.BigEndian.Uint64(head[:]), start, end, uint32(id)}
		*at, start = *at+1, end
	}
	for b := range 256 {
		slices.SortFunc(tokens[first[b]:first[b+1]], func(x, y trieToken) int {
			if x.head != y.head {
				return cmp.Compare(x.head, y.head)
			}
			return bytes.Compare(blob[x.start:x.end], blob[y.start:y.end])
		})
	}
	return tokens
}

func (b *trieBuilder) grow() {
	b.open = append(b.open, len(b.free))
	b.free = append(b.free, trieBlock)
	b.cells = append(b.cells, make([]uint64, trieBlock)...)
	b.taken = append(b.taken, make([]uint64, trieBlock/64)...)
	b.based = append(b.based, make([]uint64, trieBlock/64)...)
}

// place allocates cells for the children of node, which is the first depth bytes of tokens[lo:hi],
// and recursively for theirs. prefix is the longest token it starts with.
func (b *trieBuilder) place(node *uint64, lo, hi, depth int, prefix uint32) {
	if t := b.tokens[lo]; int(t.end-t.start) == depth {
		token := t.id<<groupBits | groupOf(b.blob[t.start:t.end])
		*node |= uint64(token) + 1
		if prefix == none {
			prefix = token
		}
		b.prefix[t.id] = prefix
		prefix = token
		lo++
	}
	if lo == hi {
		return
	}
	first := len(b.labels)
	for i := lo; i < hi; i++ {
		if label := b.label(i, depth); len(b.labels) == first || b.labels[len(b.labels)-1] != label {
			b.labels = append(b.labels, label)
		}
	}
	base := b.find(b.labels[first:])
	*node |= uint64(base) << trieBase
	b.take(base, b.labels[first:])
	for k := first; lo < hi; k++ {
		from := lo
		for lo < hi && b.label(lo, depth) == b.labels[k] {
			lo++
		}
		at := base ^ int(b.labels[k])
		child := b.cells[at]
		b.place(&child, from, lo, depth+1, prefix)
		b.cells[at] = child
	}
	b.labels = b.labels[:first]
}

func (b *trieBuilder) label(token, depth int) byte {
	return b.blob[int(b.tokens[token].start)+depth]
}

func (b *trieBuilder) take(base int, labels []byte) {
	b.based[base>>6] |= 1 << (base & 63)
	b.free[base/trieBlock] -= len(labels)
	for _, label := range labels {
		at := base ^ int(label)
		b.taken[at>>6] |= 1 << (at & 63)
		b.cells[at] = trieUsed | uint64(label)<<tokenBits
	}
}

// find returns a base whose cells for labels are free. It checks only the latest open blocks and
// drops those that are nearly full.
func (b *trieBuilder) find(labels []byte) int {
	const tries, full = 16, 8
	for k := len(b.open) - 1; k >= max(0, len(b.open)-tries); k-- {
		block := b.open[k]
		if b.free[block] < full {
			b.open = slices.Delete(b.open, k, k+1)
			continue
		}
		if b.free[block] >= len(labels) {
			if base, ok := b.fit(block, labels); ok {
				return base
			}
		}
	}
	b.grow()
	base, _ := b.fit(len(b.free)-1, labels)
	return base
}

// fit returns a base in block whose cells for labels are free.
func (b *trieBuilder) fit(block int, labels []byte) (base int, ok bool) {
	for word := block * trieBlock / 64; word < (block+1)*trieBlock/64; word++ {
		for free := ^b.taken[word]; free != 0; free &= free - 1 {
			base := (word<<6 | bits.TrailingZeros64(free)) ^ int(labels[0])
			if b.based[base>>6]&(1<<(base&63)) == 0 && b.fits(base, labels[1:]) {
				return base, true
			}
		}
	}
	return 0, false
}

func (b *trieBuilder) fits(base int, labels []byte) bool {
	for _, label := range labels {
		if at := base ^ int(label); b.taken[at>>6]&(1<<(at&63)) != 0 {
			return false
		}
	}
	return true
}
