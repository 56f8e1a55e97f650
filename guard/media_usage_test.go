package guard

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// recorded is a WAV file of 8-bit mono sound at 1000 samples a second.
func recorded(seconds uint32) string {
	b := []byte("RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	b = binary.LittleEndian.AppendUint32(b, 1000)
	b = binary.LittleEndian.AppendUint32(b, 1000)
	b = append(b, "\x01\x00\x08\x00data"...)
	b = binary.LittleEndian.AppendUint32(b, seconds*1000)
	return string(b) + strings.Repeat("\x80", int(seconds)*1000)
}

// TestUsageOfMediaIsChecked compares the usage of a transcript with the recording and its text, and that
// of pictures with what was drawn.
func TestUsageOfMediaIsChecked(t *testing.T) {
	r := newRig(t, roomy()...)
	text := strings.Repeat("paper boats drift ", 120) // 360 tokens
	transcript := func(text, usage string) string { return `{"text":"` + text + `","usage":` + usage + `}` }
	tokens := func(in, out int64) string {
		return fmt.Sprintf(`{"type":"tokens","input_tokens":%d,"output_tokens":%d,"total_tokens":%d}`, in, out, in+out)
	}
	for _, x := range []struct {
		name, model, answer string
		fault               UsageFault
		want                pricing.Nano // 0: the hold
	}{
		{"seconds", "minutes", transcript("hi", `{"type":"duration","seconds":60}`), "", 6_000_000},
		{"rounded seconds", "minutes", transcript("hi", `{"type":"duration","seconds":59}`), "", 5_900_000},
		{"hardly any seconds", "minutes", transcript("hi", `{"type":"duration","seconds":1}`), LowInput, 6_000_000},
		{"an hour", "minutes", transcript("hi", `{"type":"duration","seconds":3600}`), HighInput, 6_000_000},
		{"seconds where tokens have the price", "listener", transcript("hi", `{"type":"duration","seconds":60}`), Malformed, 0},
		{"tokens", "listener", transcript(text, tokens(600, 360)), "", 600_000 + 3_600_000},
		{"few tokens a second", "listener", transcript("hi", tokens(100, 1)), "", 110_000},
		{"a token for a minute", "listener", transcript("hi", tokens(1, 1)), LowInput, 610_000},
		{"no output beside text", "listener", transcript(text, tokens(600, 0)), LowOutput, 0},
		{"a token beside text", "listener", transcript(text, tokens(600, 1)), LowOutput, 0},
		{"a picture", "painter", `{"data":[{"b64_json":"AAAA"}],"usage":` + tokens(9, 272) + `}`, "", 2_729_000},
		{"a token for a picture", "painter", `{"data":[{"b64_json":"AAAA"}],"size":"1024x1024","quality":"low","usage":` + tokens(9, 1) + `}`, LowOutput, 0},
		{"nothing for a picture", "painter", `{"data":[{"b64_json":"AAAA"}],"usage":` + tokens(9, 0) + `}`, LowOutput, 0},
	} {
		r.vendor(t, &vendor{status: 200, kind: "application/json", body: x.answer}, nil)
		r.prices(t, `[{model: minutes, prices: [{input: 0, output: 0, per_minute: 0.006}]},
			{model: listener, max_output: 2000, prices: [{input: 1, output: 10}]}, {model: painter, prices: [{input: 1, output: 10, image_out: 10, images: [{tokens: 2000}, {size: 1024x1024, quality: low, tokens: 272}]}]}]`)
		const part = "--b\r\nContent-Disposition: form-data; name=%s\r\n\r\n%s\r\n"
		form := fmt.Sprintf(part, `"model"`, x.model) + fmt.Sprintf(part, `"file"; filename="a.wav"`, recorded(60)) + "--b--\r\n"
		req, err := wire.ScanForm(wire.Transcriptions, "", "multipart/form-data; boundary=b", strings.NewReader(form))
		if x.model == "painter" {
			req, err = wire.Scan(wire.ImageGenerations, []byte(`{"model":"painter","prompt":"hi"}`), wire.Limits{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if req.Form != nil {
			req.Form.Source = strings.NewReader(form)
		}
		p, err := r.guard.Plans.Prepare(r.caller(), req)
		if err != nil {
			t.Fatal(err)
		}
		before, c := r.used(), r.begin(p)
		err = c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{Header: http.Header{}})
		c.End(t.Context())
		r.settle()
		want, res := x.want, c.Result
		if want == 0 {
			want = p.Max.Cost
		}
		faults := slices.DeleteFunc([]UsageFault{x.fault}, func(f UsageFault) bool { return f == "" || f == Malformed })
		if err != nil || res.Cost != want || res.Estimated != (x.fault != "") || !slices.Equal(res.UsageFaults, faults) {
			t.Errorf("%s: charged %v, estimated %t, %v, %v; want %v of %v held", x.name, res.Cost, res.Estimated, res.UsageFaults, err, want, p.Max.Cost)
		}
		r.charged(before, c)
	}
}

// TestStrangeCounts checks that no text in place of a count makes a call free, dearer than its hold or
// an answer that cannot be relayed: such a usage is an estimate.
func TestStrangeCounts(t *testing.T) {
	r := newRig(t, roomy()...)
	text := strings.Repeat("paper boats drift ", 40) // 120 tokens
	for _, count := range []string{
		"-1", "-5e3", "1e308", "-1e308", "1e-308", "9999999999999999999999999", `"NaN"`, `"Infinity"`, `"-5"`, `""`, `"0x10"`, "true", "[5]",
		`{"n":5}`, `"1e308"`, "1073741825",
	} {
		for _, usage := range []string{
			`{"prompt_tokens":` + count + `,"completion_tokens":120}`, `{"prompt_tokens":9,"completion_tokens":` + count + `}`,
			`{"prompt_tokens":9,"completion_tokens":120,"completion_tokens":` + count + `}`,
			`{"prompt_tokens":` + count + `,"completion_tokens":` + count + `,"total_tokens":` + count + `}`,
			`{"prompt_tokens":9,"completion_tokens":120,"total_tokens":` + count + `}`,
			`{"prompt_tokens":9,"completion_tokens":120,"prompt_tokens_details":{"cached_tokens":` + count + `}}`,
			`{"prompt_tokens":9,"completion_tokens":120,"cost":` + count + `}`,
		} {
			for _, stream := range []bool{false, true} {
				v, extra := &vendor{status: 200, kind: "application/json", body: plainAnswer(text, usage)}, `"max_tokens":500`
				if stream {
					v.kind, v.body, extra = "text/event-stream", streamAnswer(text, usage), extra+","+streamed
				}
				r.house(t, v, nil)
				before := r.used()
				c, w, err := r.run(t.Context(), prompt("llama-house", "hi", extra))
				if res := c.Result; err != nil || w.Code != 200 || res.Cost < 120*10_000 || res.Cost > c.Plan.Max.Cost {
					t.Errorf("%s, stream %t: charged %v of %v, %v", usage, stream, res.Cost, c.Plan.Max.Cost, err)
				}
				r.charged(before, c)
			}
		}
	}
}
