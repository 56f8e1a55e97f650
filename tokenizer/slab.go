package tokenizer

import "unsafe"

// slab is one piece of memory for the large tables of an encoding, so that it can
// be of huge pages: a first count looks at places all over the tables, and with
// pages of 4 KB it waits for their addresses as long as for the memory.
type slab struct {
	free []uint64
}

func newSlab(bytes int) *slab {
	s := &slab{make([]uint64, bytes/8)}
	adviseHuge(s.free)
	return s
}

// carve returns n zero values of a type without pointers from s, or from the heap
// when s is used up.
func carve[T any](s *slab, n int) []T {
	words := (n*int(unsafe.Sizeof(*new(T))) + 63) / 64 * 8 // whole lines of the cache
	if words > len(s.free) {
		return make([]T, n)
	}
	p := unsafe.Pointer(unsafe.SliceData(s.free))
	s.free = s.free[words:]
	return unsafe.Slice((*T)(p), n)
}
