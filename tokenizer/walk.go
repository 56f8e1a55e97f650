package tokenizer

// A piece that is not one token is counted from left to right: take the longest token at the start
// of the rest, and fall back to shorter ones if it cannot follow its left neighbor. A sequence of
// tokens in which every two neighbors are compatible is the result of the merges, and the only one
// (as shown by the bpe crate of github/rust-gems). That takes a step per token, not per byte, and
// no search for the lowest rank.

// tokenInfo packs, from the low bits, the two parts that a token merges from (itself for single
// bytes) and its length.
type tokenInfo uint64

func newTokenInfo(left, right uint32, size int) tokenInfo {
	return tokenInfo(left) | tokenInfo(right)<<tokenBits | tokenInfo(size)<<(2*tokenBits)
}

func (t tokenInfo) left() uint32  { return uint32(t & (1<<tokenBits - 1)) }
func (t tokenInfo) right() uint32 { return uint32(t >> tokenBits & (1<<tokenBits - 1)) }
func (t tokenInfo) size() int     { return int(t >> (2 * tokenBits)) }

const (
	besideBits = 15
	pairBits   = 2 * idBits
	tagBits    = pairBits - besideBits
)

// besideMemo caches which tokens may be adjacent. An entry is exact: slot and tag together are a
// one-to-one mix of the pair.
type besideMemo [1 << besideBits]uint32 // tag<<2 | answer<<1 | used

func (c *codec) beside(a, b uint32, memo *besideMemo) bool {
	mixed := pairKey(a, b) * mixer & (1<<pairBits - 1)
	slot := &memo[mixed>>tagBits]
	tag := uint32(mixed&(1<<tagBits-1))<<2 | 1
	if *slot&^2 == tag {
		return *slot&2 != 0
	}
	ok := c.compatible(a, b)
	*slot = tag
	if ok {
		*slot |= 2
	}
	return ok
}

// compatible reports whether the merges do not cross the seam between the adjacent tokens a and b.
// It undoes merges from the highest rank down and checks at each step whether the two parts at the
// seam would have merged before.
func (v *vocab) compatible(a, b uint32) bool {
	limit := none
	for {
		if v.merge(a, b) < limit {
			return false
		}
		if a > b {
			limit = a
			a = v.info[a>>groupBits].right()
			if a != limit {
				continue
			}
			limit = b + 1
			b = v.info[b>>groupBits].left()
			if b+1 == limit {
				return true
			}
		} else {
			limit = b + 1 // on ties the left pair merges first
			b = v.info[b>>groupBits].left()
			if b+1 != limit {
				continue
			}
			limit = a
			a = v.info[a>>groupBits].right()
			if a == limit {
				return true
			}
		}
	}
}

// walker is the working memory of walks.
type walker struct {
	beside besideMemo
	stack  []uint32
	dead   [window/64 + 1]uint64 // positions in no valid sequence; zero between walks
}

// walk counts p, of 1 to window bytes, by stepping through its tokens. It returns false for the few
// texts with too many dead ends.
func (c *codec) walk(p []byte, w *walker) (int, bool) {
	stack := w.stack[:0]
	pos := 0
	last := none
	marked := false
	t := c.trie()
	token, size := t.longest(p)
	budget := 4*len(p) + 256
	for {
		end := pos + size
		budget--
		if budget < 0 {
			break
		}
		if w.dead[end>>6]&(1<<(end&63)) == 0 && (last == none || c.beside(last, token, &w.beside)) {
			stack = append(stack, token)
			if end == len(p) {
				break
			}
			pos, last = end, token
			token, size = t.longest(p[pos:])
			continue
		}
		if shorter := t.prefix[token>>groupBits]; shorter != token {
			token, size = shorter, c.info[shorter>>groupBits].size()
			continue
		}
		w.dead[pos>>6] |= 1 << (pos & 63)
		marked = true
		token, size = last, c.info[last>>groupBits].size()
		pos -= size
		stack = stack[:len(stack)-1]
		last = none
		if len(stack) > 0 {
			last = stack[len(stack)-1]
		}
	}
	if marked {
		clear(w.dead[:len(p)>>6+1])
	}
	w.stack = stack
	return len(stack), budget >= 0
}
