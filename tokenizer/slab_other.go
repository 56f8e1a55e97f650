//go:build !linux

package tokenizer

// adviseHuge does nothing: this system is not asked for huge pages.
func adviseHuge([]uint64) {}
