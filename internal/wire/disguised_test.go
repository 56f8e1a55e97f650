package wire

import (
	"bytes"
	"slices"
	"testing"
)

// TestCompressedInWAV: a WAV file whose samples are a compressed recording has the length of its
// size at the lowest bit rate; sound that happens to look like one frame header does not.
func TestCompressedInWAV(t *testing.T) {
	t.Parallel()
	frame := func(head string, length int) []byte { return append([]byte(head), make([]byte, length-len(head))...) }
	twice := func(b []byte) []byte { return slices.Concat(b, b) }
	start := []byte("RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x00\x77\x01\x00\x00\xee\x02\x00\x02\x00\x10\x00data\xff\xff\xff\xff")
	for name, x := range map[string]struct {
		sound      []byte
		compressed bool
	}{
		"MP3 32 kbit/s":         {twice(frame("\xff\xfb\x14\x00", 96)), true},
		"MP3 8 kbit/s, MPEG 2":  {twice(frame("\xff\xf3\x14\x00", 24)), true},
		"MP3 after silence":     {append(make([]byte, 500), twice(frame("\xff\xfb\x14\x00", 96))...), true},
		"layer II":              {twice(frame("\xff\xfd\x14\x00", 96)), true},
		"ADTS":                  {twice(frame("\xff\xf1\x50\x80\x02\x1f", 16)), true},
		"tags":                  {[]byte("ID3\x04"), true},
		"Ogg":                   {[]byte("OggS\x00"), true},
		"one head, no frame":    {frame("\xff\xfb\x14\x00", 400), false},
		"samples of minus one":  {bytes.Repeat([]byte{0xff}, 400), false},
		"silence":               {make([]byte, 400), false},
		"nothing":               {nil, false},
		"a head without a rate": {twice(frame("\xff\xfb\xf4\x00", 96)), false},
	} {
		const size = 1 << 20
		c := Creation{Files: []File{{Head: append(slices.Clone(start), x.sound...), Size: size}}}
		millis, exact := c.Length()
		if exact == x.compressed || (millis == c.LengthBySize()) != x.compressed {
			t.Errorf("%s: %d ms, exact %v", name, millis, exact)
		}
	}
}
