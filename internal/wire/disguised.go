package wire

import (
	"bytes"
	"strings"
)

// isCompressed reports whether the samples of a WAV file look like a compressed recording, perhaps
// after silence: ffmpeg, which some providers use, decodes it as such. Real samples rarely look
// like two consecutive frames.
func isCompressed(b []byte) bool {
	b = bytes.TrimLeft(b, "\x00")
	for _, magic := range []string{"ID3", "OggS", "fLaC", "\x0b\x77", "\x77\x0b", "\x7f\xfe\x80\x01", "\xfe\x7f\x01\x80"} {
		if strings.HasPrefix(string(b[:min(len(b), 4)]), magic) {
			return true
		}
	}
	n := frameLength(b)
	return n > 0 && n < len(b) && frameLength(b[n:]) > 0
}

// frameLength returns the length of the MPEG audio (layers I to III), ADTS or LOAS frame at the
// start of b; 0 if there is none.
func frameLength(b []byte) int {
	switch {
	case len(b) < 6:
		return 0
	case b[0] == 0x56 && b[1]&0xe0 == 0xe0:
		return int(b[1]&0x1f)<<8 + int(b[2]) + 3
	case b[0] != 0xff:
		return 0
	case b[1]&0xf6 == 0xf0:
		return int(b[3]&3)<<11 + int(b[4])<<3 + int(b[5]>>5)
	case b[1]&0xe0 == 0xe0 && b[1]&0x18 != 0x08 && b[1]&6 != 0:
		return mpegLength(b)
	}
	return 0
}

// The bit rates of MPEG audio in kbit/s, by version (1, or 2 and 2.5) and layer (I first).
var mpegRates = [2][3][16]int{
	{
		{0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
		{0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
		{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
	},
	{
		{0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
	},
}

// mpegLength returns the length of the frame with this header; 0 if its rates are invalid.
func mpegLength(b []byte) int {
	version := b[1] >> 3 & 3 // 3: 1, 2: 2, 0: 2.5
	old := min(3-int(version), 1)
	layer := 3 - int(b[1]>>1&3)
	rate := mpegRates[old][layer][b[2]>>4]
	hertz := [4]int{44_100, 48_000, 32_000, 0}[b[2]>>2&3] >> min(3-version, 2)
	if version == 0 {
		hertz = [4]int{11_025, 12_000, 8_000, 0}[b[2]>>2&3]
	}
	if rate == 0 || hertz == 0 {
		return 0
	}
	padding := int(b[2] >> 1 & 1)
	switch {
	case layer == 0:
		return (12*1000*rate/hertz + padding) * 4
	case layer == 2 && old == 1:
		return 72*1000*rate/hertz + padding
	}
	return 144*1000*rate/hertz + padding
}
