package tokenizer

import (
	"bytes"
	"image"
	"image/color/palette"
	"image/gif"
	"image/jpeg"
	"image/png"
	"slices"
	"testing"
)

func TestImageTokens(t *testing.T) {
	for _, c := range []struct {
		model  string
		w, h   int
		detail string
		want   int
	}{
		// pamelafox/openai-messages-token-helper tests/image_messages.py, API-verified:
		// 266 and 8,511 tokens with 11 of text.
		{"gpt-4o", 1, 1, "auto", 266 - 11},
		{"gpt-4o", 1, 1, "low", 96 - 11},
		{"gpt-4o-mini", 1, 1, "auto", 8511 - 11},
		{"gpt-4o-mini", 1, 1, "low", 2844 - 11},
		// OpenAI's vision guide.
		{"gpt-4o", 1024, 1024, "high", 765},
		{"gpt-4o", 2048, 4096, "high", 1105},
		{"gpt-4o", 0, 0, "", 1445},
		{"gpt-4o", 1 << 30, 1, "", 85 + 4*170},
		{"gpt-4-turbo", 512, 512, "", 255},
		{"o3", 0, 0, "", 1275},
		{"gpt-5", 0, 0, "", 1190},
		{"gpt-5.1", 512, 512, "", 210},
		{"gpt-4.1-mini", 1024, 1024, "", 1659}, // 1,024 patches x 1.62
		{"gpt-4.1-mini", 0, 0, "", 2489},
		{"gpt-4.1-nano", 4000, 4000, "", 3779},
		{"o4-mini", 0, 0, "", 2642},
		{"gpt-5-mini", 1024, 1024, "", 1659},
		{"gpt-5-mini", 0, 0, "", 2489},
		{"gpt-5-nano", 1024, 1024, "", 2520},
		{"gpt-5-nano", 0, 0, "", 3779},
		{"gpt-6-sol", 4032, 3024, "", 14364}, // as billed for a 12 MP photo
		{"gpt-5.5", 4032, 3024, "", 12000},
		{"gpt-5.5", 4032, 3024, "high", 3000},
		// Anthropic, 28-pixel patches.
		{"claude-sonnet-4-5", 1092, 1092, "", 1521},
		{"claude-sonnet-4-5", 0, 0, "", 1600},
		{"claude-opus-5", 0, 0, "", 4784},
		// Google.
		{"gemini-2.5-flash", 384, 384, "", 258},
		{"gemini-2.5-flash", 1000, 700, "", 516},
		{"gemini-3.1-pro-preview", 10, 10, "", 1120},
		{"something-new", 64, 64, "", 16},
	} {
		if got := ImageTokens(c.model, c.w, c.h, c.detail); got != c.want {
			t.Errorf("ImageTokens(%q, %d, %d, %q) = %d, want %d", c.model, c.w, c.h, c.detail, got, c.want)
		}
	}
}

// TestImageTokensMaximum: no image of a known size costs more than one of unknown size.
func TestImageTokensMaximum(t *testing.T) {
	for _, model := range []string{"gpt-4o", "gpt-4o-mini", "o3", "gpt-5", "gpt-5-nano", "gpt-5.3", "gpt-5.4-nano", "gpt-5.5", "gpt-6-sol", "claude-opus-5", "claude-haiku-4-5", "gemini-2.5-pro", "gemini-3.5-flash", "x"} {
		for _, detail := range []string{"", "low", "high"} {
			most := ImageTokens(model, 0, 0, detail)
			for _, size := range [][2]int{{1, 1}, {512, 512}, {768, 2048}, {5000, 5000}, {1, 1 << 31}, {1 << 31, 1 << 31}} {
				if got := ImageTokens(model, size[0], size[1], detail); got > most || got <= 0 {
					t.Errorf("ImageTokens(%q, %v, %q) = %d, maximum %d", model, size, detail, got, most)
				}
			}
		}
	}
}

// imageFiles returns files of 300 x 170 pixels: three encoded by the standard library, and WebP
// headers built by hand from the format's specification.
func imageFiles(tb testing.TB) map[string][]byte {
	tb.Helper()
	img := image.NewPaletted(image.Rect(0, 0, 300, 170), palette.Plan9)
	var p, g, j bytes.Buffer
	for _, err := range []error{png.Encode(&p, img), gif.Encode(&g, img, nil), jpeg.Encode(&j, img, nil)} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	exif := append([]byte("\xFF\xD8\xFF\xFF\xE1\x01\x02"), make([]byte, 256)...) // with a fill byte
	tables := append([]byte("\xFF\xD8\xFF\xC4\x00\x0C"), make([]byte, 10)...)    // Huffman tables first
	return map[string][]byte{
		"jpeg tables": append(tables, j.Bytes()[2:]...),
		"png":         p.Bytes(), "gif": g.Bytes(), "jpeg": j.Bytes(),
		"jpeg exif": append(exif, j.Bytes()[2:]...),
		"webp lossy": []byte("RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x10\x00\x00\x9D\x01\x2A" +
			"\x2C\x41\xAA\x40"), // scale bits set
		"webp lossless": []byte("RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2F\x2B\x41\x2A\x10"),
		"webp extended": []byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0A\x00\x00\x00\x10\x00\x00\x00\x2B\x01\x00\xA9\x00\x00" +
			"ICCP\x03\x00\x00\x00abc\x00VP8L\x00\x00\x00\x00\x2F\x2B\x41\x2A\x10"),
		"webp animated": []byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0A\x00\x00\x00\x02\x00\x00\x00\x2B\x01\x00\xA9\x00\x00" +
			"ANMF\x10\x00\x00\x00\x01\x00\x00\x01\x00\x00\x29\x01\x00\xA7\x00\x00\x00\x00\x00\x00"),
	}
}

func TestImageSize(t *testing.T) {
	for name, file := range imageFiles(t) {
		if w, h, ok := ImageSize(file); w != 300 || h != 170 || !ok {
			t.Errorf("%s: %d x %d %v, want 300 x 170", name, w, h, ok)
		}
		for n := range min(len(file), 700) { // truncated anywhere: the right size or none
			if w, h, ok := ImageSize(file[:n]); ok && (w != 300 || h != 170) {
				t.Errorf("%s cut at %d: %d x %d", name, n, w, h)
			}
		}
	}
	for _, other := range []string{"", "BM", "\x89PNG\r\n\x1a\n", "RIFF\x00\x00\x00\x00WAVEfmt \x00", "<svg width='300'>", "\xFF\xD8\xFF\xD9", "\xFF\xD8\xFF\xE0\x00\x00\xFF"} {
		if w, h, ok := ImageSize([]byte(other)); ok {
			t.Errorf("ImageSize(%q) = %d x %d", other, w, h)
		}
	}
}

// TestImagesOfTwoSizes: an image whose pictures exceed its canvas has no size.
func TestImagesOfTwoSizes(t *testing.T) {
	files := imageFiles(t)
	canvas := func(name string, at int, b ...byte) []byte {
		file := bytes.Clone(files[name])
		copy(file[at:], b)
		return file
	}
	for name, file := range map[string][]byte{
		"GIF":             canvas("gif", 6, 1, 0, 1, 0),
		"GIF, one side":   canvas("gif", 6, 0x2c, 1, 0xa9, 0),
		"WebP":            canvas("webp extended", 24, 0, 0, 0, 0, 0, 0),
		"WebP, larger":    canvas("webp extended", 24, 0x2c, 1, 0, 0xa9, 0, 0),
		"animated WebP":   canvas("webp animated", 24, 0, 0, 0, 0, 0, 0),
		"canvas alone":    files["webp extended"][:30],
		"GIF, no picture": files["gif"][:13+768],
	} {
		if w, h, ok := ImageSize(file); ok {
			t.Errorf("%s: %d x %d, want none", name, w, h)
		}
	}
	for name, at := range map[string]int{"png": 33, "jpeg": bytes.Index(files["jpeg"], []byte("\xFF\xDA"))} {
		from := map[string]int{"png": 8, "jpeg": bytes.Index(files["jpeg"], []byte("\xFF\xC0"))}[name]
		head := map[string]int{"png": 25, "jpeg": 19}[name]
		file := slices.Concat(files[name][:at], files[name][from:from+head], files[name][at:])
		if w, h, ok := ImageSize(file); ok {
			t.Errorf("%s with two headers: %d x %d, want none", name, w, h)
		}
	}
	two := append(bytes.Clone(files["gif"][:len(files["gif"])-1]), "\x2c\x00\x00\x00\x00\xff\x0f\xff\x0f\x00\x02\x00\x3b"...)
	if w, h, ok := ImageSize(two); ok {
		t.Errorf("a second picture outside of the canvas: %d x %d, want none", w, h)
	}
}

func FuzzImageSize(f *testing.F) {
	for _, file := range imageFiles(f) {
		f.Add(file[:min(len(file), 400)])
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		if w, h, ok := ImageSize(header); ok != (w > 0 && h > 0) || w < 0 || h < 0 {
			t.Errorf("%d x %d %v", w, h, ok)
		}
	})
}
