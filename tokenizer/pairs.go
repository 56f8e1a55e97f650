package tokenizer

import "errors"

// A token is its rank in the high bits and the number of its group in the low bits, so that tokens
// compare like their ranks. The group locates the pairs in the table whose left part is the token.
const (
	groupBits = 10
	tokenBits = idBits + groupBits
)

// groupOf returns the group of a token: by the first byte after a space, or by two bytes for
// scripts that share the first. The parts of the tables that one script uses are then close
// together, which reduces cache misses.
func groupOf(token []byte) uint32 {
	if len(token) > 1 && token[0] == ' ' {
		token = token[1:]
	}
	switch b := uint32(token[0]); {
	case b < 0x80:
		return 0
	case b&^1 == 0xE0 && len(token) > 1:
		return 0x100 + b&1<<6 + uint32(token[1])&0x3F
	default:
		return b
	}
}

// pairTable maps two adjacent tokens to the token they merge into. It is a perfect hash: every pair
// has its own slot, found by a seed, so a lookup takes two loads and no branch that could be
// mispredicted.
type pairTable struct {
	groups [1 << groupBits]pairGroup // by the left part
	seeds  []uint8
	maybe  *filter  // the pairs of group 0, which is large
	slots  []uint64 // rank of left << 46 | rank of right << 28 | token
}

// pairGroup locates the seeds and slots of a group.
type pairGroup struct {
	seed, seeds, slot, slots uint32
}

const (
	respread  = 0xD6E8FEB86659FD93
	emptySlot = ^uint64(0)
)

func pairKey(left, right uint32) uint64 {
	return uint64(left>>groupBits)<<idBits | uint64(right>>groupBits)
}

func (g *pairGroup) seedAt(hash uint64) uint64 {
	return uint64(g.seed) + hash>>32*uint64(g.seeds)>>32
}

func (g *pairGroup) slotAt(hash uint64, seed uint8) uint64 {
	return uint64(g.slot) + (hash^uint64(seed))*respread>>32*uint64(g.slots)>>32
}

// merge returns the token that left and right merge into, or none.
func (t *pairTable) merge(left, right uint32) uint32 {
	key := pairKey(left, right)
	hash := key * mixer
	group := left & (1<<groupBits - 1)
	if group == 0 && !t.maybe.has(hash) {
		return none
	}
	g := &t.groups[group]
	slot := t.slots[g.slotAt(hash, t.seeds[g.seedAt(hash)])]
	token := uint32(slot & (1<<tokenBits - 1))
	if slot>>tokenBits != key {
		token = none
	}
	return token
}

var errNoSeed = errors.New("no perfect hash of the pairs")

// pair is an entry of slots with its group.
type pair struct {
	slot  uint64
	group uint32
}

func newPair(left, right, made uint32) pair {
	return pair{pairKey(left, right)<<tokenBits | uint64(made), left & (1<<groupBits - 1)}
}

func (p pair) hash() uint64 { return p.slot >> tokenBits * mixer }

// newPairTable builds the table of the pairs that tokens merge from. Seeds are chosen for the
// largest buckets first, while most slots are free.
func newPairTable(pairs []pair, s *slab) (pairTable, error) {
	t := pairTable{maybe: &carve[filter](s, 1)[0]}
	for _, p := range pairs {
		t.groups[p.group].slots++
		if p.group == 0 {
			t.maybe.add(p.hash())
		}
	}
	var slots, seeds uint32
	for i := range t.groups {
		g := &t.groups[i]
		n := g.slots
		g.slot, g.slots = slots, n+n/3+1
		g.seed, g.seeds = seeds, n/3+1
		slots, seeds = slots+g.slots, seeds+g.seeds
	}
	t.seeds, t.slots = carve[uint8](s, int(seeds)), carve[uint64](s, int(slots))
	for i := range t.slots {
		t.slots[i] = emptySlot
	}
	ends, sorted := t.buckets(pairs)
	var sizes [64][]uint32 // buckets by number of pairs
	for bucket := range seeds {
		n := min(ends[bucket+1]-ends[bucket], uint32(len(sizes)-1))
		sizes[n] = append(sizes[n], bucket)
	}
	for n := len(sizes) - 1; n > 0; n-- {
		for _, bucket := range sizes[n] {
			if !t.place(bucket, sorted[ends[bucket]:ends[bucket+1]]) {
				return t, errNoSeed
			}
		}
	}
	return t, nil
}

// buckets sorts the pairs by the seed they use.
func (t *pairTable) buckets(pairs []pair) (ends []uint32, sorted []pair) {
	ends, sorted = make([]uint32, len(t.seeds)+2), make([]pair, len(pairs))
	of := make([]uint32, len(pairs))
	for i, p := range pairs {
		of[i] = uint32(t.groups[p.group].seedAt(p.hash()))
		ends[of[i]+2]++
	}
	for b := 2; b < len(ends); b++ {
		ends[b] += ends[b-1]
	}
	for i, b := range of {
		sorted[ends[b+1]] = pairs[i]
		ends[b+1]++
	}
	return ends[:len(ends)-1], sorted
}

// place finds a seed that puts the pairs of a bucket into free slots.
func (t *pairTable) place(bucket uint32, members []pair) bool {
	var slots [256]uint64
	g := &t.groups[members[0].group]
	for seed := range 256 {
		placed := 0
		for _, p := range members {
			at := g.slotAt(p.hash(), uint8(seed))
			if t.slots[at] != emptySlot {
				break
			}
			t.slots[at] = p.slot
			slots[placed] = at
			placed++
		}
		if placed == len(members) {
			t.seeds[bucket] = uint8(seed)
			return true
		}
		for _, at := range slots[:placed] {
			t.slots[at] = emptySlot
		}
	}
	return false
}
