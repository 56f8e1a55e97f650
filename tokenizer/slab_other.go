//go:build !linux

package tokenizer

// adviseHuge does nothing on this system.
func adviseHuge([]uint64) {}
