package tokenizer

import "fmt"

// vocabBuilder finds the pair that each token merges from, in the order of ranks.
type vocabBuilder struct {
	*vocab
	slab  *slab
	maybe filter   // the pairs known so far
	table []uint64 // the same in the format of pairTable, with open addressing; 0 is empty
	shift uint8
	found []uint64 // the same, in order
	group []uint32 // of the left part of each

	tokens []uint32
	parts  []uint64 // merge with the next part << 32 | token
}

// Sizes of the tables except those of short members: for pairs, 4/3 slots of eight bytes, and 8 bytes
// of parts; slabBesides is the rest.
const (
	slabPerToken = 19
	slabBesides  = 7 << 18
)

func newVocabBuilder(tokens int) *vocabBuilder {
	bits := uint8(18)
	if tokens > 1<<17 {
		bits = 19
	}
	b := &vocabBuilder{vocab: &vocab{}, table: make([]uint64, 1<<bits), shift: 64 - bits}
	b.slab = newSlab(8<<(bits-1) + 16<<(bits-2) + tokens*slabPerToken + slabBesides)
	b.found, b.group = make([]uint64, 0, tokens), make([]uint32, 0, tokens)
	b.size(tokens, bits, b.slab)
	return b
}

// addBytes adds the single-byte tokens, ranks 0 to 255.
func (b *vocabBuilder) addBytes(singles []byte) {
	for rank, single := range singles {
		token := uint32(rank)<<groupBits | groupOf(singles[rank:rank+1])
		b.byteID[single], b.byteOf[rank] = token, single
		b.info[rank] = newTokenInfo(token, token, 1)
	}
}

// addPair records the merge that makes token. Its bytes must merge into two parts with the lower
// ranks known so far.
func (b *vocabBuilder) addPair(token []byte, rank int) error {
	if n := b.mergeAll(token); n != 2 {
		return fmt.Errorf("token %q is not reachable: %d parts", token, n)
	}
	left, right := uint32(b.parts[0]), uint32(b.parts[1])
	made := uint32(rank)<<groupBits | groupOf(token)
	b.put(left, right, made)
	b.info[rank] = newTokenInfo(left, right, len(token))
	b.addToken(token, made, left, right)
	return nil
}

func (b *vocabBuilder) put(left, right, made uint32) {
	key := pairKey(left, right)
	hash := key * mixer
	b.maybe.add(hash)
	h := hash >> b.shift
	for b.table[h] != 0 {
		h = (h + 1) & uint64(len(b.table)-1)
	}
	b.table[h] = key<<tokenBits | uint64(made)
	b.found = append(b.found, b.table[h])
	b.group = append(b.group, left&(1<<groupBits-1))
}

// merge is pairTable.merge on the pairs known so far.
func (b *vocabBuilder) merge(left, right uint32) uint32 {
	key := pairKey(left, right)
	hash := key * mixer
	if !b.maybe.has(hash) {
		return none
	}
	for h := hash >> b.shift; ; h++ {
		slot := b.table[h&uint64(len(b.table)-1)]
		if slot>>tokenBits == key && slot != 0 {
			return uint32(slot & (1<<tokenBits - 1))
		}
		if slot == 0 {
			return none
		}
	}
}

// mergeAll sets b.parts to the parts that token merges into and returns their number. It merges the
// lowest rank, leftmost on ties, until no pair merges. Comparing whole parts compares ranks,
// because pairs of the same rank have the same left token.
func (b *vocabBuilder) mergeAll(token []byte) int {
	if len(b.tokens) < len(token) {
		b.tokens, b.parts = make([]uint32, 2*len(token)), make([]uint64, 2*len(token))
	}
	n := b.seed(b.tokens, token)
	parts := b.parts[:n]
	for i := range n - 1 {
		parts[i] = uint64(b.merge(b.tokens[i], b.tokens[i+1]))<<32 | uint64(b.tokens[i])
	}
	parts[n-1] = uint64(none)<<32 | uint64(b.tokens[n-1])
	for {
		low, at := uint64(none)<<32, -1
		for i, p := range parts {
			if p < low {
				low, at = p, i
			}
		}
		if at < 0 {
			return len(parts)
		}
		joined := uint32(low >> 32)
		parts[at] = uint64(none)<<32 | uint64(joined)
		if at+2 < len(parts) {
			parts[at] = uint64(b.merge(joined, uint32(parts[at+2])))<<32 | uint64(joined)
		}
		if at > 0 {
			left := uint32(parts[at-1])
			parts[at-1] = uint64(b.merge(left, joined))<<32 | uint64(left)
		}
		copy(parts[at+1:], parts[at+2:])
		parts = parts[:len(parts)-1]
	}
}
