package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// slowest is the lowest expected bit rate of recordings, in bytes per millisecond: 8 kbit/s.
const slowest = 1

// Length bounds the total length of a form's recordings, in milliseconds. exact means that it is
// their length: all are uncompressed WAV files whose header is consistent with itself and with the
// size. Other recordings are assumed to have the lowest bit rate at which speech is recorded.
func (c *Creation) Length() (millis int64, exact bool) {
	exact = true
	for _, f := range c.Files {
		n, agrees, ok := wavLength(f.Head, f.Size)
		if !ok {
			n = bySize(f.Size)
		}
		millis, exact = millis+n, exact && ok && agrees
	}
	return min(millis, maxCount), exact
}

// LengthBySize bounds the total length of a form's recordings without trusting any header.
func (c *Creation) LengthBySize() (millis int64) {
	for _, f := range c.Files {
		millis += bySize(f.Size)
	}
	return min(millis, maxCount)
}

func bySize(size int64) int64 { return size/slowest + 1 }

// recording describes the sound according to the header of a WAV file.
type recording struct {
	perSecond uint64 // bytes per second; 0 before the format is known
	start     int64  // of the sound, in bytes
	declared  int64  // the length of the sound as announced; 0 if its writer did not know it
}

// wavLength returns the length of a WAV file of the given size, based on the bytes after its
// header, never on the announced length. It is exact if the two agree. ok is false if decoders
// might not play it at the rate it announces.
func wavLength(head []byte, size int64) (millis int64, exact, ok bool) {
	r, ok := readWAV(head)
	if !ok {
		return 0, false, false
	}
	if isCompressed(head[r.start:]) {
		return 0, false, false
	}
	left := size - r.start
	millis = int64((uint64(left)*1000 + r.perSecond - 1) / r.perSecond)
	// Padding makes an odd length even. 2^32-1 is written for an unknown length.
	exact = r.declared == 0 || r.declared+1 >= left
	return millis, exact, left >= 0
}

// readWAV reads the chunks before the sound. Two formats, or none before the sound, are refused,
// because decoders disagree on which one counts.
func readWAV(head []byte) (r recording, ok bool) {
	if len(head) < 12 || string(head[:4]) != "RIFF" || string(head[8:12]) != "WAVE" {
		return r, false
	}
	for at := 12; at+8 <= len(head); {
		kind, n := string(head[at:at+4]), int64(binary.LittleEndian.Uint32(head[at+4:]))
		at += 8
		if kind == "data" {
			r.start, r.declared = int64(at), n
			return r, r.perSecond > 0
		}
		if n > int64(len(head)-at) {
			return r, false
		}
		if kind == "fmt " {
			if r.perSecond > 0 {
				return r, false
			}
			r.perSecond = wavRate(head[at : at+int(n)])
			if r.perSecond == 0 {
				return r, false
			}
		}
		at += int(n + n&1)
	}
	return r, false
}

// The formats of uncompressed WAV files, and the GUID by which the newer header names them.
const (
	wavPCM        = 1
	wavFloat      = 3
	wavALaw       = 6
	wavMuLaw      = 7
	wavExtensible = 0xfffe
	wavGUID       = "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
)

// wavRate returns the bytes per second of an uncompressed format whose numbers are consistent, else
// 0: a number that one decoder ignores may be the one that another uses.
func wavRate(f []byte) uint64 {
	const mostChannels, mostRate = 8, 192_000
	if len(f) < 16 {
		return 0
	}
	word := func(at int) uint64 { return uint64(binary.LittleEndian.Uint16(f[at:])) }
	format := word(0)
	channels := word(2)
	block := word(12)
	bits := word(14)
	rate, perSecond := uint64(binary.LittleEndian.Uint32(f[4:])), uint64(binary.LittleEndian.Uint32(f[8:]))
	sample := (bits + 7) / 8
	if format == wavExtensible {
		if len(f) < 40 || string(f[26:40]) != wavGUID {
			return 0
		}
		if valid := word(18); valid != 0 && (valid+7)/8 != sample {
			return 0
		}
		format = word(24)
	}
	switch format {
	case wavPCM:
		if sample < 1 || sample > 4 {
			return 0
		}
	case wavFloat:
		if sample != 4 && sample != 8 {
			return 0
		}
	case wavALaw, wavMuLaw:
		if sample != 1 {
			return 0
		}
	default:
		return 0
	}
	if channels == 0 || channels > mostChannels || rate == 0 || rate > mostRate ||
		block != channels*sample || perSecond != rate*block {
		return 0
	}
	return perSecond
}

// SpokenLength estimates the length of speech from its first bytes, its size and the requested
// format: WAV, raw PCM as sent by OpenAI (24 kHz, 16 bit), and MP3 with a constant bit rate. ok is
// false for others.
func SpokenLength(head []byte, size int64, format string) (millis int64, ok bool) {
	if n, _, ok := wavLength(head, size); ok {
		return n, true
	}
	if format == "pcm" {
		return (size + 47) / 48, true
	}
	if rate := mp3Rate(head); rate > 0 && (format == "mp3" || format == "") {
		return (size*8 + rate - 1) / rate, true
	}
	return 0, false
}

// mp3Rate returns the bit rate of the first frame in kbit/s, which equals bits per millisecond; 0
// if there is none.
func mp3Rate(b []byte) int64 {
	if len(b) >= 10 && string(b[:3]) == "ID3" {
		skip := 10 + (int(b[6]&0x7f)<<21 | int(b[7]&0x7f)<<14 | int(b[8]&0x7f)<<7 | int(b[9]&0x7f))
		if skip >= len(b) {
			return 0
		}
		b = b[skip:]
	}
	if len(b) < 4 || b[0] != 0xff || b[1]&0xe6 != 0xe2 { // layer III
		return 0
	}
	first := [16]int64{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0}
	second := [16]int64{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0}
	if b[1]&0x18 == 0x18 {
		return first[b[2]>>4]
	}
	return second[b[2]>>4]
}

// isCompressed reports whether the samples of a WAV file look like a compressed recording, perhaps
// after silence: ffmpeg, which some providers use, decodes it as such. Real samples rarely look
// like two consecutive frames.
func isCompressed(b []byte) bool {
	b = bytes.TrimLeft(b, "\x00")
	magic := []string{"ID3", "OggS", "fLaC", "\x0b\x77", "\x77\x0b", "\x7f\xfe\x80\x01", "\xfe\x7f\x01\x80"}
	if slices.ContainsFunc(magic, func(m string) bool { return bytes.HasPrefix(b, []byte(m)) }) {
		return true
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
