package wire

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// letterMillis is the minimum time to speak a letter: faster than anyone talks.
	letterMillis = 20
	// inventedLetters and windowMillis are what a model may add to a recording: it hears words in
	// noise, and times its last caption by its window of 30 s.
	inventedLetters = 1000
	windowMillis    = 30_000
)

// shownLength returns the minimum length of a recording according to its transcript, in
// milliseconds: by the letters of a text, and by the times of captions (SRT, VTT).
func shownLength(transcript []byte) int64 {
	shown := (int64(utf8.RuneCount(transcript)) - inventedLetters) * letterMillis
	for line := range bytes.Lines(transcript) {
		from, to, ok := bytes.Cut(line, []byte(" --> "))
		if !ok || captionMillis(from) < 0 {
			continue
		}
		to, _, _ = bytes.Cut(bytes.TrimSpace(to), []byte(" ")) // settings may follow
		shown = max(shown, captionMillis(to)-windowMillis)
	}
	return min(max(shown, 0), maxCount)
}

// captionMillis reads a time such as 00:01:02,345 or 01:02.345; -1 if it is none.
func captionMillis(text []byte) int64 {
	whole, part, ok := strings.Cut(strings.ReplaceAll(strings.TrimSpace(string(text)), ",", "."), ".")
	millis, err := strconv.ParseUint(part, 10, 10)
	if !ok || len(part) != 3 || err != nil {
		return -1
	}
	var seconds uint64
	for unit := range strings.SplitSeq(whole, ":") {
		n, err := strconv.ParseUint(unit, 10, 16)
		if err != nil {
			return -1
		}
		seconds = min(seconds*60+n, maxCount)
	}
	return int64(seconds*1000 + millis)
}
