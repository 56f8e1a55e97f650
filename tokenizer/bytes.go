package tokenizer

// byteMerge says what happens where two bytes meet: from the high bits the rank
// of the token they merge into, the lowest rank of a merge whose right part is
// the second byte alone and whose left part ends in the first, the lowest rank of
// a merge whose left part is the first byte alone and whose right part starts
// with the second (all idMask without one), and the group of the token.
type byteMerge uint64

const (
	noByteMerge byteMerge = 1<<(3*idBits+groupBits) - 1
	noByteToken           = uint32(1<<tokenBits - 1) // its token, which is above all others
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

// addToken notes what token, which merges into rank from left and right, means
// for the bytes at its ends.
func (v *vocab) addToken(token []byte, made, left, right uint32) {
	first, last, rank := token[0], token[len(token)-1], uint64(made>>groupBits)
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

// seed fills tokens with those p starts from and returns their number. Two bytes
// whose merge outranks every merge that could take one of them away are joined
// at once, which halves the work on scripts whose characters have two bytes.
func (v *vocab) seed(tokens []uint32, p []byte) int {
	n := 0
	before := noByteMerge
	for i := 0; i < len(p); n++ {
		if i+1 == len(p) {
			tokens[n] = v.byteID[p[i]]
			return n + 1
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
