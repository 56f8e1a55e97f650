//go:build race

package tokenizer

const raceOn = true
