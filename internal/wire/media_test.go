package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// wav returns the header of a recording with a chunk of notes before its sound.
func wav(format, channels, bits uint16, rate uint32) []byte {
	b := []byte("RIFF\xff\xff\xff\xffWAVELIST\x05\x00\x00\x00notes\x00fmt \x10\x00\x00\x00")
	block := channels * bits / 8
	b = binary.LittleEndian.AppendUint16(b, format)
	b = binary.LittleEndian.AppendUint16(b, channels)
	b = binary.LittleEndian.AppendUint32(b, rate)
	b = binary.LittleEndian.AppendUint32(b, rate*uint32(block))
	b = binary.LittleEndian.AppendUint16(b, block)
	b = binary.LittleEndian.AppendUint16(b, bits)
	return append(b, "data\x00\x00\x00\x00"...)
}

// length returns the assumed length of the recording of a form.
func length(head []byte, size int64) (int64, bool) {
	c := wire.Creation{Files: []wire.File{{Head: head, Size: size}}}
	return c.Length()
}

// TestLengthOfRecordings: a WAV is as long as its bytes, whatever its header says; the length of
// other files has an upper bound.
func TestLengthOfRecordings(t *testing.T) {
	head := int64(len(wav(1, 1, 16, 16_000)))
	for _, test := range []struct {
		name   string
		head   []byte
		size   int64
		millis int64
		exact  bool
	}{
		{"a second of speech", wav(1, 1, 16, 16_000), head + 32_000, 1000, true},
		{"stereo", wav(1, 2, 16, 44_100), head + 176_400, 1000, true},
		{"8 bits", wav(1, 1, 8, 8_000), head + 8_001, 1001, true},
		{"no sound", wav(1, 1, 16, 16_000), head, 0, true},
		{"a compressed WAV", wav(85, 1, 16, 16_000), 5000, 5001, false},
		{"no rate", wav(1, 1, 16, 0), 5000, 5001, false},
		{"no channels", wav(1, 0, 16, 16_000), 5000, 5001, false},
		{"an MP3", []byte("ID3\x04"), 5000, 5001, false},
		{"nothing", nil, 0, 1, false},
	} {
		if millis, exact := length(test.head, test.size); millis != test.millis || exact != test.exact {
			t.Errorf("%s: %d ms, exact %t, want %d, %t", test.name, millis, exact, test.millis, test.exact)
		}
	}
	one := wire.File{Head: wav(1, 1, 16, 16_000), Size: head + 32_000}
	two := wire.Creation{Files: []wire.File{one, one}}
	if millis, exact := two.Length(); millis != 2000 || !exact {
		t.Errorf("two recordings: %d ms, exact %t, want 2000, true", millis, exact)
	}
}

// TestLyingRecordings: a WAV with inconsistent numbers is as long as its size allows.
func TestLyingRecordings(t *testing.T) {
	const size = 1 << 20
	honest := wav(1, 1, 16, 16_000)
	at := bytes.Index(honest, []byte("fmt ")) + 8
	put := func(offset int, b ...byte) []byte {
		forged := slices.Clone(honest)
		copy(forged[at+offset:], b)
		return forged
	}
	extensible := func(bits, valid byte) []byte {
		b := bytes.Replace(honest, []byte("fmt \x10"), []byte("fmt \x28"), 1)
		extra := append([]byte{22, 0, valid, 0, 4, 0, 0, 0, 1, 0}, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"...)
		b = slices.Insert(b, at+16, extra...)
		b[at], b[at+1], b[at+14] = 0xfe, 0xff, bits
		return b
	}
	for name, head := range map[string][]byte{
		"a rate no recorder has":      put(4, 0xff, 0xff, 0xff, 0x7f),
		"blocks of other samples":     put(12, 0xff, 0xff),
		"other bytes a second":        put(8, 0xff, 0xff, 0xff, 0x7f),
		"channels that are not there": put(2, 4),
		"more channels than ears":     wav(1, 64, 16, 16_000),
		"two formats":                 slices.Insert(slices.Clone(honest), at-8, honest[at-8:at+16]...),
		"sound before its format":     slices.Insert(slices.Clone(honest), at-8, []byte("data\x00\x00\x00\x00")...),
		"a format cut short":          bytes.Replace(honest, []byte("fmt \x10"), []byte("fmt \x08"), 1),
		"GSM":                         put(0, 0x31),
		"ADPCM":                       put(0, 2),
		"floats of two bytes":         put(0, 3),
		"fewer bits than their bytes": extensible(16, 8),
	} {
		if millis, exact := length(head, size); millis != size+1 || exact {
			t.Errorf("%s: %d ms, exact %t, want %d, false", name, millis, exact, size+1)
		}
	}
	whole := extensible(16, 16)
	if millis, exact := length(whole, int64(len(whole))+32_000); millis != 1000 || !exact {
		t.Errorf("the newer form: %d ms, exact %t, want 1000, true", millis, exact)
	}
	short := slices.Clone(honest)
	short[len(short)-4] = 10 // bytes of sound, followed by many more
	if millis, exact := length(short, int64(len(short))+32_000); millis != 1000 || exact {
		t.Errorf("sound said to end early: %d ms, exact %t, want 1000, false", millis, exact)
	}
}

// TestTranscriptsShowLength: captions and letters give the minimum length of a recording.
func TestTranscriptsShowLength(t *testing.T) {
	for name, test := range map[string]struct {
		transcript string
		least      int64
	}{
		"a word":        {"Hello.", 0},
		"an hour read":  {strings.Repeat("word ", 8200), 800_000},
		"JSON":          {`{"text":"` + strings.Repeat("w\u00fcrd ", 8200) + `"}`, 800_000},
		"SRT":           {"1\n00:00:00,000 --> 00:40:00,500\nHello.\n", 2_370_500},
		"VTT":           {"WEBVTT\n\n00:00.000 --> 40:00.500 align:start\nHello.\n", 2_370_500},
		"an arrow":      {"see 3 --> 99:00:00,000", 0},
		"a silly time":  {"00:00,000 --> 9999999:99:99,999", 0},
		"a large time":  {"00:00,000 --> 9999:00:00,000", 1 << 30},
		"not a time":    {"00:00,000 --> x", 0},
		"seconds named": {`{"text":"x","duration":1.5}`, 0},
	} {
		got := wire.ParseCreated(wire.Transcriptions, []byte(test.transcript)).ShownMillis
		if got != test.least {
			t.Errorf("%s: %d ms, want %d", name, got, test.least)
		}
	}
}

// TestHostileHeads: no broken or forged header makes a length negative, or a form longer than 2^30
// ms.
func TestHostileHeads(t *testing.T) {
	heads := [][]byte{wav(1, 2, 16, 44_100), []byte("ID3\x04\x00\x00\x00\x00\x00\x02..\xff\xfb\x90\xc4"), []byte("\xff\xf3\x80\xc4")}
	check := func(head []byte, size int64) {
		t.Helper()
		if n, _ := length(head, size); n < 0 || n > 1<<30 {
			t.Fatalf("%q of %d bytes: %d ms", head, size, n)
		}
		for _, format := range []string{"", "mp3", "wav", "pcm", "opus"} {
			if n, _ := wire.SpokenLength(head, size, format); n < 0 {
				t.Fatalf("%q of %d bytes as %q: %d ms", head, size, format, n)
			}
		}
	}
	for _, head := range heads {
		for n := range len(head) + 1 {
			check(head[:n], int64(n))
			check(head[:n], 1<<20)
		}
		for i := range head {
			for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				forged := append([]byte(nil), head...)
				forged[i] = b
				check(forged, 1<<20)
			}
		}
	}
}

const boundary = "multipart/form-data; boundary=xx"

// form returns a form with these fields and a recording.
func form(fields ...string) string {
	var b strings.Builder
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&b, "--xx\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", fields[i], fields[i+1])
	}
	b.WriteString("--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n")
	b.Write(wav(1, 1, 16, 16_000))
	b.WriteString(strings.Repeat("\r\n--x", 8000) + "\r\n--xx--\r\n")
	return b.String()
}

// TestFormsInAnyPieces: a form reads the same in whatever pieces it arrives.
func TestFormsInAnyPieces(t *testing.T) {
	body := form("model", "whisper-1", "prompt", "Grüße", "language", "de")
	first := ""
	for name, reader := range map[string]io.Reader{
		"at once":        strings.NewReader(body),
		"by the byte":    iotest.OneByteReader(strings.NewReader(body)),
		"by halves":      iotest.HalfReader(strings.NewReader(body)),
		"with its end":   iotest.DataErrReader(strings.NewReader(body)),
		"after an empty": io.MultiReader(strings.NewReader(""), strings.NewReader(body)),
	} {
		r, err := wire.ScanForm(wire.Transcriptions, "", boundary, reader)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		millis, exact := r.Creation.Length()
		if r.Model != "whisper-1" || len(r.Inputs) != 1 || r.Form.Size != int64(len(body)) || millis != 1250 || !exact {
			t.Errorf("%s: model %s, %d texts, %d bytes, %d ms", name, r.Model, len(r.Inputs), r.Form.Size, millis)
		}
		if first == "" {
			first = string(r.Body)
		}
		if string(r.Body) != first {
			t.Errorf("%s: described as %s, else as %s", name, r.Body, first)
		}
	}
}

// TestFormsCutAnywhere: a truncated form is an error, and a network failure is reported as such.
func TestFormsCutAnywhere(t *testing.T) {
	body := strings.Replace(form("model", "whisper-1"), strings.Repeat("\r\n--x", 8000), "sound", 1)
	for n := range len(body) - len("--\r\n") {
		_, err := wire.ScanForm(wire.Transcriptions, "", boundary, strings.NewReader(body[:n]))
		if err == nil {
			t.Errorf("cut at %d of %d: no error", n, len(body))
		}
	}
	broken := errors.New("the network")
	_, err := wire.ScanForm(wire.Transcriptions, "", boundary, io.MultiReader(strings.NewReader(body[:50]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("a broken network: %v", err)
	}
}

// TestWaitsGoThere: our client reads the wait that we send, rounded up to the second.
func TestWaitsGoThere(t *testing.T) {
	for _, wait := range []time.Duration{0, 1, time.Millisecond, time.Second, 1001 * time.Millisecond, wire.MaxRetryAfter, wire.MaxRetryAfter + 1, 24 * time.Hour} {
		h := http.Header{}
		wire.SetRetryAfter(h, wait)
		got, ok := wire.ParseRetryAfter(h, time.Now())
		want := max(wait.Truncate(time.Second), 0)
		if want < wait || want == 0 {
			want += time.Second
		}
		if !ok || got != want {
			t.Errorf("%s: read as %s, %t, want %s", wait, got, ok, want)
		}
		if told := h.Get("X-Should-Retry") == "false"; told != (got > wire.MaxRetryAfter) {
			t.Errorf("%s: x-should-retry %q; SDKs obey %s at most", wait, h.Get("X-Should-Retry"), wire.MaxRetryAfter)
		}
	}
}

// TestResetsGoThere: a reset that we write is read back unchanged, to the millisecond.
func TestResetsGoThere(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 999, time.Millisecond, 12 * time.Millisecond, time.Second, 61 * time.Second, time.Hour, 100 * time.Hour, -time.Second} {
		text := string(wire.AppendReset(nil, d))
		h := http.Header{"X-Ratelimit-Limit-Tokens": {"10"}, "X-Ratelimit-Reset-Tokens": {text}}
		want := max(d.Truncate(time.Millisecond), 0)
		if want < d {
			want += time.Millisecond
		}
		if got := wire.ParseRateLimits(h, time.Now()).Tokens.Reset; got != want {
			t.Errorf("%s is written %s and read %s, want %s", d, text, got, want)
		}
	}
}
