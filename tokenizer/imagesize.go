package tokenizer

import (
	"bytes"
	"encoding/binary"
)

// ImageSize reads width and height in pixels from the first bytes of a PNG,
// GIF, JPEG or WebP file, without decoding it. ok is false when header is none
// of these, is cut before the size, or gives a size of zero. 32 bytes are
// enough but for JPEG, whose size stands after the metadata: usually within
// 64 KB.
func ImageSize(header []byte) (w, h int, ok bool) {
	switch {
	case bytes.HasPrefix(header, []byte("\x89PNG\r\n\x1a\n")):
		w, h = pngSize(header)
	case bytes.HasPrefix(header, []byte("GIF87a")), bytes.HasPrefix(header, []byte("GIF89a")):
		w, h = gifSize(header)
	case bytes.HasPrefix(header, []byte("\xFF\xD8\xFF")):
		w, h = jpegSize(header)
	case len(header) >= 12 && string(header[:4]) == "RIFF" && string(header[8:12]) == "WEBP":
		w, h = webpSize(header)
	}
	return w, h, w > 0 && h > 0
}

func pngSize(b []byte) (w, h int) {
	if len(b) < 24 || string(b[12:16]) != "IHDR" {
		return 0, 0
	}
	return int(binary.BigEndian.Uint32(b[16:])), int(binary.BigEndian.Uint32(b[20:]))
}

func gifSize(b []byte) (w, h int) {
	if len(b) < 10 {
		return 0, 0
	}
	return int(binary.LittleEndian.Uint16(b[6:])), int(binary.LittleEndian.Uint16(b[8:]))
}

// jpegSize walks the segments to the first start-of-frame.
func jpegSize(b []byte) (w, h int) {
	for i := 2; i+4 <= len(b); {
		if b[i] != 0xFF {
			return 0, 0
		}
		marker := b[i+1]
		switch {
		case marker == 0xFF: // fill byte
			i++
			continue
		case marker == 0x01, 0xD0 <= marker && marker <= 0xD8: // no payload
			i += 2
			continue
		case marker == 0xD9, marker == 0xDA: // end of image, start of scan
			return 0, 0
		case 0xC0 <= marker && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC:
			if i+9 > len(b) {
				return 0, 0
			}
			return int(binary.BigEndian.Uint16(b[i+7:])), int(binary.BigEndian.Uint16(b[i+5:]))
		}
		size := int(binary.BigEndian.Uint16(b[i+2:]))
		if size < 2 {
			return 0, 0
		}
		i += 2 + size
	}
	return 0, 0
}

// webpSize reads the first chunk: lossy (VP8), lossless (VP8L) or extended.
func webpSize(b []byte) (w, h int) {
	switch {
	case len(b) >= 30 && string(b[12:16]) == "VP8 " && string(b[23:26]) == "\x9D\x01\x2A":
		return int(binary.LittleEndian.Uint16(b[26:]) & 0x3FFF), int(binary.LittleEndian.Uint16(b[28:]) & 0x3FFF)
	case len(b) >= 25 && string(b[12:16]) == "VP8L" && b[20] == 0x2F:
		bits := binary.LittleEndian.Uint32(b[21:])
		return int(bits&0x3FFF) + 1, int(bits>>14&0x3FFF) + 1
	case len(b) >= 30 && string(b[12:16]) == "VP8X":
		return uint24(b[24:]) + 1, uint24(b[27:]) + 1
	}
	return 0, 0
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
