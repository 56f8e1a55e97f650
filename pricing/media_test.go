package pricing

import (
	"fmt"
	"strings"
	"testing"
)

// TestMediaCharges prices what is not counted in tokens.
func TestMediaCharges(t *testing.T) {
	picture := func(size, quality string) Terms { return Terms{ImageSize: size, ImageQuality: quality} }
	for _, x := range []struct {
		name, model string
		usage       Usage
		terms       Terms
		want        Nano
	}{
		{"two standard squares", "dall-e-3", Usage{Images: 2}, picture("1024x1024", "standard"), 80_000_000},
		{"the default", "dall-e-3", Usage{Images: 1}, Terms{}, 40_000_000},
		{"a size alone", "dall-e-3", Usage{Images: 1}, picture("1792x1024", ""), 80_000_000},
		{"left to the provider", "dall-e-3", Usage{Images: 1}, picture("auto", "hd"), 120_000_000},
		{"an unknown size costs the most", "dall-e-3", Usage{Images: 1}, picture("9x9", "hd"), 120_000_000},
		{"no quality in the list", "dall-e-2", Usage{Images: 3}, picture("256x256", "standard"), 48_000_000},
		{"a minute", "whisper-1", Usage{AudioMillis: 60_000}, Terms{}, 6_000_000},
		{"a millisecond", "whisper-1", Usage{AudioMillis: 1}, Terms{}, 100},
		{"characters", "tts-1-hd", Usage{Characters: 11}, Terms{}, 330_000},
		{"tokens", "gpt-image-1", Usage{Input: 60, ImageIn: 50, Output: 272}, Terms{}, 50_000 + 500_000 + 10_880_000},
		{"transcript", "gpt-4o-transcribe", Usage{Input: 20, AudioIn: 14, Output: 7}, Terms{}, 15_000 + 84_000 + 70_000},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := lookup(t, "openai", x.model, november)
			got, err := p.Charge(x.usage, x.terms)
			if err != nil || got != x.want {
				t.Errorf("charge %d, %v; want %d", got, err, x.want)
			}
			most, err := p.Ceiling(x.usage, x.terms)
			if err != nil || most < got {
				t.Errorf("ceiling %d, %v; below the charge", most, err)
			}
			parts, err := p.Split(x.usage, x.terms)
			if err != nil || parts.Total() != got {
				t.Errorf("parts %+v, %v; do not add up", parts, err)
			}
			bill, err := p.Explain(x.usage, x.terms)
			if err != nil || bill.Charge != got {
				t.Errorf("explained as %+v, %v", bill, err)
			}
		})
	}
}

// TestMinutesRoundUpOnce: a third of a pico-unit counts as one, not as zero.
func TestMinutesRoundUpOnce(t *testing.T) {
	list, err := ParseEntries([]byte(`[{model: w, prices: [{input: 0, output: 0, per_minute: 0.00000000002}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := list[0].Price(november)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Charge(Usage{AudioMillis: 1}, Terms{}); err != nil || got != 1 {
		t.Errorf("charge %d, %v; want 1", got, err)
	}
}

// TestImageBound checks how much is held for one picture.
func TestImageBound(t *testing.T) {
	for _, x := range []struct {
		model, size, quality string
		tokens               int64
		usd                  string
		found                bool
	}{
		{"gpt-image-1", "1024x1024", "low", 272, "", true},
		{"gpt-image-1", "1024x1024", "", 4160, "", true},
		{"gpt-image-1", "auto", "auto", 6240, "", true},
		{"gpt-image-1", "", "", 6240, "", true},
		{"gpt-image-1", "64x64", "low", 0, "", false},
		{"dall-e-3", "", "hd", 0, "0.08", true},
		{"gpt-4o", "", "", 0, "", false},
	} {
		i, ok := lookup(t, "openai", x.model, november).Image(Terms{ImageSize: x.size, ImageQuality: x.quality})
		usd := ""
		if i.Each.Given {
			usd = formatDecimal(int64(i.Each.Pico), feeDigits)
		}
		if ok != x.found || i.Tokens != x.tokens || usd != x.usd {
			t.Errorf("%+v: found %v, %d tokens, %q", x, ok, i.Tokens, usd)
		}
	}
}

// TestImagesAreRefused checks that invalid lists of pictures are refused, and that a valid one can
// be written and read back.
func TestImagesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`[{size: 1x1}]`:                         "each or tokens",
		`[{each: 1, tokens: 2}]`:                "each or tokens",
		`[{size: auto, each: 1}]`:               "not a size",
		`[{each: 1}, {each: 2}]`:                "twice",
		`[{tokens: -1}]`:                        "out of range",
		`[{each: 1, colour: red}]`:              "colour",
		`[{size: 1x1, quality: hd, each: "x"}]`: "price",
	} {
		list, err := ParseEntries([]byte("[{model: m, prices: [{input: 0, output: 0, images: " + text + "}]}]"))
		if err == nil {
			_, err = New("", list)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want one with %q", text, err, want)
		}
	}
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WriteEntries(&b, c.Entries()); err != nil {
		t.Fatal(err)
	}
	list, err := ParseEntries([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	again, err := New("", list)
	if err != nil || again.Version() != c.Version() {
		t.Errorf("written and read, version %s is %v, %v", c.Version(), again, err)
	}
}

// TestPicturesOfAnySize checks that the tokens held for a picture of gpt-image-2 are never fewer than it draws, and
// those of a listed size are exact.
func TestPicturesOfAnySize(t *testing.T) {
	p := lookup(t, "openai", "gpt-image-2", november)
	for quality, q := range map[string]int64{"low": 16, "medium": 48, "high": 96} {
		for _, size := range [][2]int64{{1024, 1024}, {1024, 1536}, {1536, 1024}, {2880, 2880}, {3840, 2160}, {2560, 1440}, {816, 816}, {3840, 1280}, {2048, 2048}} {
			w, h := size[0], size[1]
			long, short := max(w, h), min(w, h)
			want := (q*((2*q*short+long)/(2*long))*(2_000_000+w*h) + 3_999_999) / 4_000_000
			i, ok := p.Image(Terms{ImageSize: fmt.Sprintf("%dx%d", w, h), ImageQuality: quality})
			if !ok || i.Tokens < want || i.Size != "" && i.Tokens != want {
				t.Errorf("%s %v: %+v, want %d", quality, size, i, want)
			}
			for _, t2 := range []Terms{{}, {ImageSize: "auto", ImageQuality: quality}, {ImageQuality: "auto"}} {
				if i, ok := p.Image(t2); !ok || i.Tokens < want && (t2.ImageQuality == quality || t2.ImageQuality != quality && i.Tokens < 23_719) {
					t.Errorf("%s %v under %+v: %+v", quality, size, t2, i)
				}
			}
		}
	}
}
