//go:build !race

package tokenizer

const raceOn = false
