package wire

import "encoding/binary"

// slowest is the bit rate below which no recording is expected, in bytes a
// millisecond: 8 kbit/s.
const slowest = 1

// Length bounds how long the recordings of a form are, in milliseconds. Exact
// says that it is their length: all are uncompressed WAV. Others are taken at
// the lowest bit rate that speech is recorded at.
func (c *Creation) Length() (millis int64, exact bool) {
	exact = true
	for _, f := range c.Files {
		n, ok := wavLength(f.Head, f.Size)
		if !ok {
			n, exact = f.Size/slowest+1, false
		}
		millis += n
	}
	return min(millis, maxCount), exact
}

// wavLength reads how long a PCM WAV file of so many bytes is. What the header
// says of the length is not believed.
func wavLength(head []byte, size int64) (millis int64, ok bool) {
	if len(head) < 12 || string(head[:4]) != "RIFF" || string(head[8:12]) != "WAVE" {
		return 0, false
	}
	var perSecond uint64
	for at := 12; at+8 <= len(head); {
		kind, n := string(head[at:at+4]), int(binary.LittleEndian.Uint32(head[at+4:]))
		at += 8
		switch {
		case kind == "fmt " && at+16 <= len(head):
			format, rate, block := binary.LittleEndian.Uint16(head[at:]), binary.LittleEndian.Uint32(head[at+4:]), binary.LittleEndian.Uint16(head[at+12:])
			if format != 1 || rate == 0 || block == 0 {
				return 0, false
			}
			perSecond = uint64(rate) * uint64(block)
		case kind == "data" && perSecond > 0 && perSecond < 1<<32:
			return int64((uint64(size-int64(at))*1000 + perSecond - 1) / perSecond), true
		}
		if n < 0 || n > len(head) {
			return 0, false
		}
		at += n + n&1
	}
	return 0, false
}

// SpokenLength estimates how long speech is by its first bytes, its size and its
// format as asked for: WAV, raw PCM as OpenAI sends it (24 kHz, 16 bit), and MP3
// of a constant bit rate. ok is false for others.
func SpokenLength(head []byte, size int64, format string) (millis int64, ok bool) {
	if n, ok := wavLength(head, size); ok {
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

// mp3Rate reads the bit rate of the first frame in kbit/s, which is bits a
// millisecond; 0 when there is none.
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
