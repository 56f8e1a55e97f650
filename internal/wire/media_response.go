package wire

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Created is the metadata of an answer with pictures, speech or a transcript, or of an event of a
// stream of them.
type Created struct {
	Answer
	// Size and Quality are those of the pictures according to the answer, or "".
	Size, Quality string
	// Pictures is the number of pictures in an answer that is not a stream.
	Pictures int64
	// Done means that the event completes a picture, the speech or the transcript.
	Done bool
	// Error means that the event is an error, and Framed that clients know its form.
	Error, Framed bool
	// Text is the decoded text that the event adds to a transcript, or the whole one.
	Text []byte
	// ShownMillis is the minimum length of a recording according to its transcript.
	ShownMillis int64
}

// ParseCreated reads an answer of ep that is not a stream, or the data of one event of its stream,
// as tolerantly as [ParseUsage]. HasUsage is false for anything that is not a JSON object, such as
// a transcript as text. A length of audio that is given in seconds is in AudioMillis.
func ParseCreated(ep Endpoint, data []byte) Created {
	traits := ep.Traits()
	r := createdReader{answerReader: answerReader{lexer: lenient(data), wants: traits.content}}
	err := r.object(r.member)
	if err != nil {
		out := Created{Answer: Answer{Fault: "the answer is not a JSON object"}}
		out.judge(&r.lexer, false, err)
		if traits.Makes == Transcripts {
			out.ShownMillis = shownLength(data)
		}
		return out
	}
	out := r.out
	out.Answer = r.answer(ep)
	out.judge(&r.lexer, r.failed(ep), nil)
	out.Size = r.word(r.size)
	out.Quality = r.word(r.quality)
	out.Text = r.text
	if !out.HasUsage && r.seconds > 0 {
		out.Usage, out.HasUsage = Usage{AudioMillis: r.seconds}, true
	}
	switch kind := r.word(r.kind); {
	case eventEnds[kind].done:
		out.Done = true
	case kind == "transcript.text.delta":
	default:
		out.Text = nil
		out.Error, out.Framed = r.wrong || kind == "" && r.message, r.framed
	}
	if traits.Makes == Transcripts && !r.transcript.IsZero() {
		out.Text = appendUnquoted(nil, data[r.transcript.Start+1:r.transcript.End-1])
		out.ShownMillis = shownLength(out.Text)
	}
	u := &out.Usage
	if traits.Makes == Pictures && u.ImageOut == 0 {
		u.ImageOut = u.Output
	}
	if traits.Makes == Sound && u.AudioOut == 0 {
		u.AudioOut = u.Output
	}
	return out
}

type createdReader struct {
	answerReader
	out                 Created
	kind, size, quality Span
	transcript          Span
	text                []byte
	seconds             int64 // in milliseconds
}

func (r *createdReader) member(name []byte) error {
	r.finds(name)
	switch string(name) {
	case "data":
		if r.peek() != '[' {
			return r.skip()
		}
		r.out.Pictures = 0
		return r.array(func(int) error { r.out.Pictures++; return r.skip() })
	case "duration":
		at, err := r.value()
		r.seconds = parseMillis(r.buf[at.Start:at.End])
		return err
	case "type":
		err := readString(&r.lexer, &r.kind)
		r.wrong = r.wrong || r.word(r.kind) == "error"
		return err
	case "size":
		return readString(&r.lexer, &r.size)
	case "quality":
		return readString(&r.lexer, &r.quality)
	case "text":
		return readString(&r.lexer, &r.transcript)
	case "delta":
		var at Span
		if err := readString(&r.lexer, &at); err != nil || at.IsZero() {
			return err
		}
		r.text = appendUnquoted(nil, r.buf[at.Start+1:at.End-1])
		return nil
	}
	return r.answerReader.member(name)
}

// parseMillis parses seconds, a JSON number or one in quotes, as milliseconds, rounded up. It
// returns 0 for an implausible length.
func parseMillis(raw []byte) int64 {
	if len(raw) >= 2 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(seconds > 0) || seconds > maxCount/1000 {
		return 0
	}
	return int64(math.Ceil(math.Round(seconds*1e6) / 1e3)) // a duration, not money
}

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
