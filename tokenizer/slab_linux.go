package tokenizer

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge requests huge pages for the part of memory that whole ones cover. The memory must not
// have been touched. It is a hint: without it only speed is lost.
func adviseHuge(memory []uint64) {
	const huge = 2 << 20
	from := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	skip := int(-from&(huge-1)) / 8
	if whole := (len(memory) - skip) / (huge / 8) * (huge / 8); whole > 0 {
		part := memory[skip : skip+whole]
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(part))), whole*8), unix.MADV_HUGEPAGE)
	}
}
