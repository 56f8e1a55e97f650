package tokenizer

import (
	"math/bits"
	"runtime"
	"slices"
)

const (
	scanMax = 64       // longest piece counted by repeated scans
	wideMax = 48       // the same for characters of three and four bytes
	window  = 64 << 10 // longest piece counted as a whole

	missBits = 13
	missMax  = 62 // longest piece in the miss cache, whose entries are one cache line
)

// codec counts text of one encoding. It is safe for concurrent use: a count writes only to a
// scratch. Scratches are kept per codec because their caches hold counts of one encoding only. They
// are kept permanently, one for each processor in use: a sync.Pool would drop 800 KB of counts
// every second garbage collection.
type codec struct {
	*vocab
	classes *classTable
	ascii   *asciiTable
	cl100k  bool
	free    chan *scratch
}

// scratch is the working memory of one count.
type scratch struct {
	miss   [1 << missBits]missEntry // first, to align with cache lines
	valid  []byte                   // text with invalid bytes replaced
	tokens [scanMax]uint32
	ranks  [scanMax]uint64
	memo   memos
	walk   walker
	long   *bucketMerge
}

// missEntry caches the count of a short piece that is not a single token.
type missEntry struct {
	key   [missMax]byte
	size  uint8
	count uint8
}

func newCodec(sp spec) (*codec, error) {
	v, err := newVocab(sp)
	if err != nil {
		return nil, err
	}
	t := loadClasses()
	return &codec{
		vocab: v, classes: t, ascii: newASCIITable(t, sp.cl100k), cl100k: sp.cl100k,
		free: make(chan *scratch, runtime.GOMAXPROCS(0)),
	}, nil
}

func (c *codec) scratch() *scratch {
	select {
	case sc := <-c.free:
		return sc
	default:
		return new(scratch)
	}
}

// release returns sc for the next count, without the buffer of an exceptionally large text.
func (c *codec) release(sc *scratch) {
	if cap(sc.valid) > 1<<20 {
		sc.valid = nil
	}
	select {
	case c.free <- sc:
	default: // more concurrent counts than processors
	}
}

// next returns the end of the piece that starts at s[i].
func (c *codec) next(s []byte, i int) (end int, open bool) {
	if c.cl100k {
		return c.classes.nextCL100k(s, i)
	}
	return c.classes.nextO200k(s, i)
}

// runes counts the characters of valid UTF-8.
func runes(s []byte) int {
	n := 0
	for _, b := range s {
		if b&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

// piece returns the number of tokens of the piece s[i:e].
func (c *codec) piece(s []byte, i, e int, sc *scratch) int {
	switch n := e - i; {
	case n < 8:
		return c.short(word(s, i, e)|uint64(n)<<56, sc)
	case n < longMin:
		return c.mid(word(s, i, i+8), word(s, i+8, e)|uint64(n)<<56, sc)
	case c.memberLong(s[i:e]):
		return 1
	}
	if s[e-3] >= 0xE3 { // ends like Chinese, Japanese or Korean, in which words are short
		return c.seamed(s, i, e, sc)
	}
	return c.unit(s, i, e, sc)
}

// seamed counts a piece in parts between which no token can be.
func (c *codec) seamed(s []byte, i, e int, sc *scratch) int {
	count := 0
	a, w := runeAt(s, i)
	for k := i + w; k < e; k += w {
		var b uint32
		b, w = runeAt(s, k)
		if c.seams.between(a, b) {
			count += c.part(s, i, k, sc)
			i = k
		}
		a = b
	}
	return count + c.part(s, i, e, sc)
}

// part is piece without a search for seams.
func (c *codec) part(s []byte, i, e int, sc *scratch) int {
	switch n := e - i; {
	case n < 8:
		return c.short(word(s, i, e)|uint64(n)<<56, sc)
	case n < longMin:
		return c.mid(word(s, i, i+8), word(s, i+8, e)|uint64(n)<<56, sc)
	case c.memberLong(s[i:e]):
		return 1
	}
	return c.unit(s, i, e, sc)
}

// unit counts s[i:e], which is not a single token.
func (c *codec) unit(s []byte, i, e int, sc *scratch) int {
	switch n := e - i; {
	case n <= missMax:
		return c.remembered(s[i:e], sc)
	case n <= window:
		return c.fresh(s[i:e], sc)
	}
	count := 0
	for ; e-i > window; i += window {
		count += c.fresh(s[i:i+window], sc)
	}
	return count + c.fresh(s[i:e], sc)
}

// remembered is fresh with the miss cache.
func (c *codec) remembered(p []byte, sc *scratch) int {
	a := word(p, 0, min(8, len(p)))
	b := word(p, max(0, len(p)-8), len(p))
	slot := &sc.miss[(a*mixer^b^uint64(len(p)))*0xD6E8FEB86659FD93>>(64-missBits)]
	if int(slot.size) == len(p) && string(slot.key[:len(p)]) == string(p) {
		return int(slot.count)
	}
	n := c.fresh(p, sc)
	slot.size, slot.count = uint8(len(p)), uint8(n)
	copy(slot.key[:], p)
	return n
}

// fresh counts a piece of 2 to window bytes.
func (c *codec) fresh(p []byte, sc *scratch) int {
	if len(p) <= wideMax || len(p) <= scanMax && p[len(p)-3] < 0xE0 && p[len(p)-4] < 0xF0 {
		return c.scan(p, sc)
	}
	if n, ok := c.walk(p, &sc.walk); ok {
		return n
	}
	return c.merged(p, sc)
}

// merged counts a piece of at most window bytes by rank buckets.
func (c *codec) merged(p []byte, sc *scratch) int {
	if sc.long == nil {
		sc.long = newBucketMerge()
	}
	return sc.long.count(c.vocab, p)
}

// bucketMerge merges a long piece rank by rank. A merge always has a higher rank than its two
// parts, so ranks are processed in ascending order, and buckets, one list of positions per rank,
// replace a heap. Every step takes constant time, except for sorting pairs of equal tokens, whose
// order matters (leftmost first).
type bucketMerge struct {
	head  []int32     // per rank, first entry of its list, or 0
	level [3][]uint64 // bitmaps over ranks: bucket in use, word in use, ...

	entries []bucketEntry
	parts   []part
	order   []int32 // positions in the current bucket
}

// bucketEntry is one position in the list of a rank. It is stale if the part at the position has
// another rank when the bucket is drained.
type bucketEntry struct {
	at   int32
	next int32 // entry, or 0
}

// part is the token that starts at a position.
type part struct {
	token uint32
	made  uint32 // by the merge with the next part, or none
	next  int32  // position of the part after, len at the end
	prev  int32  // position of the part before, -1 at the start
}

func newBucketMerge() *bucketMerge {
	b := &bucketMerge{head: make([]int32, 1<<idBits)}
	for i := range b.level {
		b.level[i] = make([]uint64, 1<<idBits>>(6*(i+1)))
	}
	return b
}

// count returns the number of tokens p merges into. It leaves every bucket empty.
func (b *bucketMerge) count(v *vocab, p []byte) int {
	b.start(v, p)
	left := len(p)
	for {
		rank, ok := b.lowest()
		if !ok {
			return left
		}
		b.drain(rank)
		for _, i := range b.order {
			if b.parts[i].made>>groupBits == rank {
				b.merge(v, i)
				left--
			}
		}
	}
}

// start initializes the lists with the bytes of p.
func (b *bucketMerge) start(v *vocab, p []byte) {
	n := len(p)
	b.entries = append(b.entries[:0], bucketEntry{})
	b.parts = slices.Grow(b.parts[:0], n)[:n]
	for i := n - 1; i >= 0; i-- { // backwards, so that lists are ascending
		b.parts[i] = part{v.byteID[p[i]], none, int32(i + 1), int32(i - 1)}
		if i+1 < n {
			b.put(int32(i), v.merge(v.byteID[p[i]], v.byteID[p[i+1]]))
		}
	}
}

// put records the token that the part at i makes with the next one, or none.
func (b *bucketMerge) put(i int32, made uint32) {
	b.parts[i].made = made
	if made == none {
		return
	}
	rank := made >> groupBits
	b.entries = append(b.entries, bucketEntry{i, b.head[rank]})
	b.head[rank] = int32(len(b.entries) - 1)
	for l := range b.level {
		b.level[l][rank>>6] |= 1 << (rank & 63)
		rank >>= 6
	}
}

// lowest returns the lowest rank with a bucket in use.
func (b *bucketMerge) lowest() (uint32, bool) {
	var rank uint32
	for l := len(b.level) - 1; l >= 0; l-- {
		word := b.level[l][rank]
		if word == 0 {
			return 0, false
		}
		rank = rank<<6 | uint32(bits.TrailingZeros64(word))
	}
	return rank, true
}

// drain moves the bucket of rank to order, ascending if its pairs can overlap.
func (b *bucketMerge) drain(rank uint32) {
	b.order = b.order[:0]
	overlap := false
	for e := b.head[rank]; e != 0; e = b.entries[e].next {
		i := b.entries[e].at
		if p := b.parts[i]; p.made>>groupBits == rank {
			b.order = append(b.order, i)
			overlap = p.token == b.parts[p.next].token
		}
	}
	b.head[rank] = 0
	for l := range b.level {
		b.level[l][rank>>6] &^= 1 << (rank & 63)
		rank >>= 6
		if b.level[l][rank] != 0 {
			break
		}
	}
	if overlap && !slices.IsSorted(b.order) {
		slices.Sort(b.order)
	}
}

// merge merges the part at i with the next one.
func (b *bucketMerge) merge(v *vocab, i int32) {
	p := &b.parts[i]
	gone := &b.parts[p.next]
	p.token, p.next = p.made, gone.next
	gone.made = none
	made := none
	if int(p.next) < len(b.parts) {
		after := &b.parts[p.next]
		after.prev = i
		made = v.merge(p.token, after.token)
	}
	b.put(i, made)
	if p.prev >= 0 {
		b.put(p.prev, v.merge(b.parts[p.prev].token, p.token))
	}
}
