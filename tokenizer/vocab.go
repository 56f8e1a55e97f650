package tokenizer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
)

// spec describes where the ranks of an encoding are and how its patterns split.
type spec struct {
	file   string
	tokens int  // ranks 0..tokens-1, the first 256 are the single bytes
	cl100k bool // splits by the cl100k_base pattern, else by o200k_base
}

var (
	o200kSpec = spec{
		file:   "o200k_base",
		tokens: 199998,
	}
	cl100kSpec = spec{
		file:   "cl100k_base",
		tokens: 100256,
		cl100k: true,
	}
)

const (
	idBits = 18
	idMask = 1<<idBits - 1
	none   = ^uint32(0) // no such merge

	filterBits  = 20
	filterShift = 64 - filterBits + 6 // shift of a hash to its word in a filter
	mixer       = 0x9E3779B97F4A7C15
	longMin     = 16 // tokens from this length are compared in the blob
)

// filter excludes most hashes that are not in a set, with a table small enough to stay in the
// processor's cache if the set's own table does not. A member has two bits in one word.
type filter [1 << (filterBits - 6)]uint64

func (f *filter) add(hash uint64) { f[hash>>filterShift] |= twoBits(hash) }

func (f *filter) has(hash uint64) bool {
	ask := twoBits(hash)
	return f[hash>>filterShift]&ask == ask
}

func twoBits(hash uint64) uint64 { return 1<<(hash>>32&63) | 1<<(hash>>26&63) }

// vocab answers the two questions of counting: are these bytes one token, and which token do two
// adjacent ones merge into. It is immutable once built.
//
// One merge per token suffices: if a token results from merges inside any text, no merge crossed
// its borders before, so the merges inside it were those of its bytes alone, and its last merge is
// always the same pair. The rank files have it, and a test checks them.
type vocab struct {
	byteID [256]uint32 // token of a single byte
	byteOf [256]byte   // and back, by its rank
	bytes  []byteMerge // first<<8 | second
	chars  *wideChars
	pairs  pairTable

	short      []uint64 // tokens of 2..7 bytes: little-endian | length<<56
	shortShift uint8
	mid        [][2]uint64 // tokens of 8..15 bytes: first 8, rest | length<<56
	midShift   uint8
	long       []uint64 // tokens of 16 bytes and more: end<<32 | start in blob
	longShift  uint8
	blob       []byte
	listed     *filter // the tokens of 2 to 15 bytes

	seams *seams
	trie  func() *trie // builds it in the first call: only long pieces need it
	info  []tokenInfo  // per rank
}

// Sizes of the tables except those of short members: for pairs, 4/3 slots of eight bytes, and 8 bytes
// of parts; slabBesides is the rest.
const (
	slabPerToken = 19
	slabBesides  = 7 << 18
)

// newVocab reads the rank file of sp and builds the tables.
func newVocab(sp spec) (*vocab, error) {
	ranks, err := readRanks(sp.file)
	if err != nil {
		return nil, err
	}
	if len(ranks.ends) != sp.tokens {
		return nil, fmt.Errorf("%s: %d tokens, want %d", sp.file, len(ranks.ends), sp.tokens)
	}
	bits := uint8(18)
	if sp.tokens > 1<<17 {
		bits = 19
	}
	slab := newSlab(8<<(bits-1) + 16<<(bits-2) + sp.tokens*slabPerToken + slabBesides)
	v := &vocab{}
	v.size(sp.tokens, bits, slab)
	pairs, err := v.addAll(ranks)
	if err == nil {
		v.pairs, err = newPairTable(pairs, slab)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sp.file, err)
	}
	v.trie = sync.OnceValue(func() *trie { return newTrie(ranks.blob, ranks.ends) })
	return v, nil
}

// addAll adds all tokens, and returns the pairs they merge from.
func (v *vocab) addAll(ranks *rankTable) ([]pair, error) {
	tokens, pairs := make([]uint32, len(ranks.ends)), make([]pair, 0, len(ranks.ends))
	for rank := range ranks.ends {
		token := ranks.token(uint32(rank))
		made := uint32(rank)<<groupBits | groupOf(token)
		tokens[rank] = made
		if rank < singles {
			v.byteID[token[0]], v.byteOf[rank] = made, token[0]
			v.info[rank] = newTokenInfo(made, made, 1)
			continue
		}
		left, right := tokens[ranks.left[rank]], tokens[ranks.right[rank]]
		pairs = append(pairs, newPair(left, right, made))
		v.info[rank] = newTokenInfo(left, right, len(token))
		v.addToken(token, made, left, right)
		v.addMember(token)
		if err := v.seams.add(token); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return pairs, nil
}

// size allocates the tables; for both vocabularies, those of members are at most half full.
func (v *vocab) size(tokens int, bits uint8, s *slab) {
	v.short, v.shortShift = carve[uint64](s, 1<<(bits-1)), 65-bits
	v.mid, v.midShift = carve[[2]uint64](s, 1<<(bits-2)), 66-bits
	v.long, v.longShift = carve[uint64](s, 1<<(bits-5)), 69-bits
	v.listed, v.seams = &carve[filter](s, 1)[0], &carve[seams](s, 1)[0]
	v.info = carve[tokenInfo](s, tokens)
	v.bytes, v.chars = carve[byteMerge](s, 1<<16), &carve[wideChars](s, 1)[0]
	for i := range v.bytes {
		v.bytes[i] = noByteMerge
	}
}

// merge returns the token that left and right merge into, or none.
func (v *vocab) merge(left, right uint32) uint32 { return v.pairs.merge(left, right) }

// addMember adds token to the members.
func (v *vocab) addMember(token []byte) {
	switch n := len(token); {
	case n < 8:
		key := word(token, 0, n) | uint64(n)<<56
		m := key * mixer
		v.listed.add(m)
		h := m >> v.shortShift
		for v.short[h] != 0 {
			h = (h + 1) & uint64(len(v.short)-1)
		}
		v.short[h] = key
	case n < longMin:
		a, b := word(token, 0, 8), word(token, 8, n)|uint64(n)<<56
		m := hashMid(a, b)
		v.listed.add(m)
		h := m >> v.midShift
		for v.mid[h] != [2]uint64{} {
			h = (h + 1) & uint64(len(v.mid)-1)
		}
		v.mid[h] = [2]uint64{a, b}
	default:
		h := hashLong(token) >> v.longShift
		for v.long[h] != 0 {
			h = (h + 1) & uint64(len(v.long)-1)
		}
		start := uint64(len(v.blob))
		v.blob = append(v.blob, token...)
		v.long[h] = uint64(len(v.blob))<<32 | start
	}
}

// memberMid, memberShort and memberLong report whether a piece is one token, by
// the words of its key or by its bytes (16 or more).
func (v *vocab) memberMid(a, b uint64) bool {
	m := hashMid(a, b)
	if !v.listed.has(m) {
		return false
	}
	for h := m >> v.midShift; ; h++ {
		slot := &v.mid[h&uint64(len(v.mid)-1)]
		if slot[0] == a && slot[1] == b {
			return true
		}
		if slot[1] == 0 {
			return false
		}
	}
}

func (v *vocab) memberShort(key uint64) bool {
	m := key * mixer
	if !v.listed.has(m) {
		return false
	}
	for h := m >> v.shortShift; ; h++ {
		slot := v.short[h&uint64(len(v.short)-1)]
		if slot == key || slot == 0 {
			return slot == key
		}
	}
}

func (v *vocab) memberLong(piece []byte) bool {
	for h := hashLong(piece) >> v.longShift; ; h++ {
		slot := v.long[h&uint64(len(v.long)-1)]
		if slot == 0 {
			return false
		}
		if bytes.Equal(v.blob[uint32(slot):slot>>32], piece) {
			return true
		}
	}
}

// word returns s[i:e], at most eight bytes, as a little-endian number.
func word(s []byte, i, e int) uint64 {
	n := e - i
	if i+8 <= len(s) {
		return binary.LittleEndian.Uint64(s[i:]) & (1<<(uint(n)*8) - 1)
	}
	var w uint64
	for k := e - 1; k >= i; k-- {
		w = w<<8 | uint64(s[k])
	}
	return w
}

func hashMid(a, b uint64) uint64 { return (a*mixer ^ b) * 0xD6E8FEB86659FD93 }

// hashLong hashes a piece of at least 16 bytes by its first 16 bytes, its last 8 and its length.
func hashLong(p []byte) uint64 {
	a := binary.LittleEndian.Uint64(p)
	b := binary.LittleEndian.Uint64(p[8:])
	c := binary.LittleEndian.Uint64(p[len(p)-8:])
	return ((a*mixer^b)*0xD6E8FEB86659FD93 ^ c ^ uint64(len(p))) * mixer
}
