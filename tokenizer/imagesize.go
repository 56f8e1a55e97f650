package tokenizer

import (
	"bytes"
	"encoding/binary"
)

// ImageSize reads width and height in pixels from the first bytes of a PNG, GIF, JPEG or WebP file,
// without decoding it. ok is false if header is in none of these formats, is truncated before the
// size, has a size of zero, or has two inconsistent sizes: a canvas and pictures outside of it, of
// which decoders show one or the other. The picture itself begins after the metadata, usually
// within 64 KB.
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

// pngSize returns the size in the only header before the picture; with two headers, decoders may
// use either one.
func pngSize(b []byte) (w, h int) {
	for at := 8; at+8 <= len(b); {
		switch kind := string(b[at+4 : at+8]); {
		case kind == "IDAT":
			return w, h
		case (kind == "IHDR") == (at > 8), kind == "IHDR" && at+16 > len(b):
			return 0, 0
		case kind == "IHDR":
			w, h = int(binary.BigEndian.Uint32(b[16:])), int(binary.BigEndian.Uint32(b[20:]))
		}
		at += 12 + int(binary.BigEndian.Uint32(b[at:]))
	}
	return 0, 0
}

// gifSize returns the size of the canvas if all pictures in b are within it.
func gifSize(b []byte) (w, h int) {
	if len(b) < 13 {
		return 0, 0
	}
	canvas := box{w: pixels(b[6:]), h: pixels(b[8:])}
	found := box{}
	for at := 13 + gifColors(b[10]); at+1 < len(b); {
		switch b[at] {
		case 0x21: // extension
			at = gifBlocks(b, at+2)
		case 0x2C: // picture
			if at+10 > len(b) {
				return found.w, found.h
			}
			frame := box{x: pixels(b[at+1:]), y: pixels(b[at+3:]), w: pixels(b[at+5:]), h: pixels(b[at+7:])}
			if !canvas.holds(frame) {
				return 0, 0
			}
			found = canvas
			at = gifBlocks(b, at+11+gifColors(b[at+9]))
		case 0x3B: // end
			return found.w, found.h
		default:
			return 0, 0
		}
	}
	return found.w, found.h
}

// gifColors returns the length of the color table announced by the flags.
func gifColors(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 6 << (flags & 7)
}

// gifBlocks returns the end of the data blocks that start at a position.
func gifBlocks(b []byte, at int) int {
	for at < len(b) && b[at] != 0 {
		at += 1 + int(b[at])
	}
	return at + 1
}

// box is the position of a picture on a canvas, in pixels.
type box struct{ x, y, w, h int }

func (b box) holds(part box) bool { return part.x+part.w <= b.w && part.y+part.h <= b.h }

func pixels(b []byte) int { return int(binary.LittleEndian.Uint16(b)) }

// jpegSize reads the segments up to the start of the scan. With two frames before it, decoders may
// use either one.
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
		case marker == 0xDA: // start of scan
			return w, h
		case marker == 0xD9: // end of image
			return 0, 0
		case 0xC0 <= marker && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC:
			if i+9 > len(b) || w > 0 {
				return 0, 0
			}
			w, h = int(binary.BigEndian.Uint16(b[i+7:])), int(binary.BigEndian.Uint16(b[i+5:]))
		}
		size := int(binary.BigEndian.Uint16(b[i+2:]))
		if size < 2 {
			return 0, 0
		}
		i += 2 + size
	}
	return 0, 0
}

// webpSize reads the first chunk: lossy (VP8), lossless (VP8L) or extended, which has a canvas.
func webpSize(b []byte) (w, h int) {
	if len(b) < 30 || string(b[12:16]) != "VP8X" {
		return webpPicture(b[12:])
	}
	canvas := box{w: uint24(b[24:]) + 1, h: uint24(b[27:]) + 1}
	for at := 30; at+8 <= len(b); {
		chunk := b[at:]
		var part box
		switch string(chunk[:4]) {
		case "VP8 ", "VP8L":
			part.w, part.h = webpPicture(chunk)
			if part != (box{w: canvas.w, h: canvas.h}) {
				return 0, 0
			}
			return canvas.w, canvas.h
		case "ANMF":
			if len(chunk) < 20 {
				return 0, 0
			}
			part = box{x: 2 * uint24(chunk[8:]), y: 2 * uint24(chunk[11:]), w: uint24(chunk[14:]) + 1, h: uint24(chunk[17:]) + 1}
			if !canvas.holds(part) {
				return 0, 0
			}
			return canvas.w, canvas.h
		}
		n := int(binary.LittleEndian.Uint32(chunk[4:]))
		at += 8 + n + n&1
	}
	return 0, 0
}

// webpPicture reads the size from a picture chunk.
func webpPicture(b []byte) (w, h int) {
	switch {
	case len(b) >= 18 && string(b[:4]) == "VP8 " && string(b[11:14]) == "\x9D\x01\x2A":
		return pixels(b[14:]) & 0x3FFF, pixels(b[16:]) & 0x3FFF
	case len(b) >= 13 && string(b[:4]) == "VP8L" && b[8] == 0x2F:
		bits := binary.LittleEndian.Uint32(b[9:])
		return int(bits&0x3FFF) + 1, int(bits>>14&0x3FFF) + 1
	}
	return 0, 0
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
