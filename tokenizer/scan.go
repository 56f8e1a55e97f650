package tokenizer

import "math/bits"

// scan counts a piece of 2 to scanMax bytes.
func (c *codec) scan(p []byte, sc *scratch) int {
	n := c.seed(sc.tokens[:], p)
	return c.mergeScan(&sc.tokens, &sc.ranks, n)
}

// mergeScan merges the lowest rank, leftmost on ties, until no pair of the first n tokens merges,
// and returns the number of remaining tokens. ranks has, for each token, its merge with the next
// one in the high bits and its position in the low bits.
func (v *vocab) mergeScan(tokens *[scanMax]uint32, ranks *[scanMax]uint64, n int) int {
	const nothing = uint64(noByteToken) << 32
	for i := range n - 1 {
		left, right := tokens[i], tokens[i+1]
		var made uint32
		if a, b := left>>groupBits, right>>groupBits; a|b < 256 {
			made = v.bytes[int(v.byteOf[uint8(a)])<<8|int(v.byteOf[uint8(b)])].token()
		} else {
			made = v.pairs.merge(left, right)
		}
		ranks[i] = uint64(made)<<32 | uint64(i)
	}
	n-- // the last one has no rank
	for i := n; i&3 != 0 || i < 4; i++ {
		ranks[i&(scanMax-1)] = nothing
	}
	live := uint64(2)<<n - 1
	for {
		low := lowest(ranks, n)
		if low >= nothing {
			return bits.OnesCount64(live)
		}
		at := low & (scanMax - 1)
		token := uint32(low >> 32)
		rest := live & (^uint64(1) << at)
		next := bits.TrailingZeros64(rest) & (scanMax - 1)
		tokens[at] = token
		live &^= 1 << next
		ranks[next], ranks[at] = nothing, nothing
		rest &= rest - 1
		if rest != 0 {
			right := tokens[bits.TrailingZeros64(rest)&(scanMax-1)]
			ranks[at] = uint64(v.pairs.merge(token, right))<<32 | at
		}
		if before := live & (1<<at - 1); before != 0 {
			left := 63 - bits.LeadingZeros64(before)
			ranks[left&(scanMax-1)] = uint64(v.pairs.merge(tokens[left&(scanMax-1)], token))<<32 | uint64(left)
		}
	}
}

// lowest returns the minimum of the first n of ranks, rounded up to a multiple of four. It uses
// four independent minima, without dependencies between them and without branches.
func lowest(ranks *[scanMax]uint64, n int) uint64 {
	a := ranks[0]
	b := ranks[1]
	c := ranks[2]
	d := ranks[3]
	for i := 4; i < n; i += 4 {
		r := (*[4]uint64)(ranks[i&(scanMax-4):])
		a = lesser(a, r[0])
		b = lesser(b, r[1])
		c = lesser(c, r[2])
		d = lesser(d, r[3])
	}
	return lesser(lesser(a, b), lesser(c, d))
}

func lesser(a, b uint64) uint64 {
	more, borrow := bits.Sub64(b, a, 0)
	return a + more&-borrow
}
