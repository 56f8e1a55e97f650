package tokenizer

import "unsafe"

// slab is one block of memory for the large tables of an encoding, so that it can use huge pages: a
// first count reads places all over the tables, and with 4 KB pages it would spend as much time on
// address translation as on memory.
type slab struct {
	free []uint64
}

func newSlab(bytes int) *slab {
	s := &slab{make([]uint64, bytes/8)}
	adviseHuge(s.free)
	return s
}

// carve returns n zero values of a type without pointers from s, or from the heap if s is used up.
func carve[T any](s *slab, n int) []T {
	words := (n*int(unsafe.Sizeof(*new(T))) + 63) / 64 * 8 // whole cache lines
	if words > len(s.free) {
		return make([]T, n)
	}
	p := unsafe.Pointer(unsafe.SliceData(s.free))
	s.free = s.free[words:]
	return unsafe.Slice((*T)(p), n)
}
