package tokenizer

// byteMerge describes the boundary between two bytes. From the high bits: the rank of the token
// they merge into; the lowest rank of a merge whose right part is just the second byte and whose
// left part ends in the first; the lowest rank of a merge whose left part is just the first byte
// and whose right part starts with the second (all idMask if there is none); and the group of the
// token.
type byteMerge uint64

const (
	noByteMerge byteMerge = 1<<(3*idBits+groupBits) - 1
	noByteToken           = uint32(1<<tokenBits - 1) // its token, which is higher than all others
)

// token returns the token the two bytes merge into, or noByteToken.
func (m byteMerge) token() uint32 {
	return uint32(m>>(2*idBits+groupBits))<<groupBits | uint32(m&(1<<groupBits-1))
}

func (m byteMerge) rank() uint64  { return uint64(m >> (2*idBits + groupBits)) }
func (m byteMerge) left() uint64  { return uint64(m>>(idBits+groupBits)) & idMask }
func (m byteMerge) right() uint64 { return uint64(m>>groupBits) & idMask }

func (m byteMerge) with(rank, left, right uint64, group uint32) byteMerge {
	return byteMerge(((rank<<idBits|left)<<idBits|right)<<groupBits | uint64(group))
}

// addToken records the effect of token, which left and right merge into, on the bytes at its ends.
func (v *vocab) addToken(token []byte, made, left, right uint32) {
	v.chars.addToken(token, made, v.info[left>>groupBits].size(), v.info[right>>groupBits].size())
	first := token[0]
	last := token[len(token)-1]
	rank := uint64(made >> groupBits)
	if len(token) == 2 {
		m := &v.bytes[int(first)<<8|int(last)]
		*m = m.with(rank, m.left(), m.right(), made&(1<<groupBits-1))
	}
	if right == v.byteID[last] {
		m := &v.bytes[int(token[len(token)-2])<<8|int(last)]
		*m = m.with(m.rank(), min(m.left(), rank), m.right(), m.group())
	}
	if left == v.byteID[first] {
		m := &v.bytes[int(first)<<8|int(token[1])]
		*m = m.with(m.rank(), m.left(), min(m.right(), rank), m.group())
	}
}

func (m byteMerge) group() uint32 { return uint32(m & (1<<groupBits - 1)) }

// wideChars has the characters of three bytes that merge from their first two bytes and the third.
type wideChars struct {
	tokens [1 << 16]uint32 // by character, 0 if it does not
	// Lowest rank of a merge whose right part is just the first two bytes of a character and whose
	// left part ends in a byte from 0x80 on, by the low bits of the three; 0 if there is none.
	taken [1 << 16]uint32
}

func wideAt(first, second, third byte) uint16 {
	return uint16(first)<<12 | uint16(second&0x3F)<<6 | uint16(third&0x3F)
}

// addToken records the effect of token, which left and right merge into.
func (w *wideChars) addToken(token []byte, made uint32, leftSize, rightSize int) {
	n := len(token)
	if n < 3 || token[n-rightSize]>>4 != 0xE && n > 3 {
		return
	}
	if n == 3 && leftSize == 2 && token[0]>>4 == 0xE && token[1]&0xC0 == 0x80 && token[2]&0xC0 == 0x80 {
		w.tokens[wideAt(token[0], token[1], token[2])] = made
	}
	if rightSize == 2 && token[n-2]>>4 == 0xE && token[n-3] >= 0x80 {
		if at := &w.taken[wideAt(token[n-2], token[n-1], token[n-3])]; *at == 0 {
			*at = made >> groupBits
		}
	}
}

// wide returns the token of the three-byte character at p[i] if it merges in any context, else 0.
// before is the boundary at its start.
func (v *vocab) wide(p []byte, i int, before byteMerge) uint32 {
	a := p[i]
	b := p[i+1]
	c := p[i+2]
	made := v.chars.tokens[wideAt(a, b, c)]
	if made == 0 || (b^0x80)|(c^0x80) >= 0x40 {
		return 0
	}
	rank := made >> groupBits
	if i > 0 {
		if p[i-1] < 0x80 {
			return 0
		}
		if taken := v.chars.taken[wideAt(a, b, p[i-1])]; taken != 0 && taken < rank {
			return 0
		}
	}
	first := v.bytes[int(a)<<8|int(b)].rank()
	if first >= before.left() || first >= v.bytes[int(b)<<8|int(c)].right() {
		return 0
	}
	if i+3 < len(p) && uint64(rank) >= v.bytes[int(c)<<8|int(p[i+3])].right() {
		return 0
	}
	return made
}

// seed fills tokens with the initial tokens of p and returns their number. Two bytes whose merge
// has a lower rank than every merge that could take one of them are joined immediately, and so are
// the three of a character, which saves at least half of the work for non-Latin scripts.
func (v *vocab) seed(tokens []uint32, p []byte) int {
	n := 0
	before := noByteMerge
	for i := 0; i < len(p); n++ {
		if i+1 == len(p) {
			tokens[n] = v.byteID[p[i]]
			return n + 1
		}
		if p[i]>>4 == 0xE && i+2 < len(p) {
			if token := v.wide(p, i, before); token != 0 {
				tokens[n], before = token, noByteMerge
				if i+3 < len(p) {
					before = v.bytes[int(p[i+2])<<8|int(p[i+3])]
				}
				i += 3
				continue
			}
		}
		here, after := v.bytes[int(p[i])<<8|int(p[i+1])], noByteMerge
		if i+2 < len(p) {
			after = v.bytes[int(p[i+1])<<8|int(p[i+2])]
		}
		if rank := here.rank(); rank < before.left() && rank < after.right() {
			tokens[n] = here.token()
			before = after
			i += 2
			continue
		}
		tokens[n] = v.byteID[p[i]]
		before = here
		i++
	}
	return n
}
