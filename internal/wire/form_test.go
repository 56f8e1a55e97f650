package wire

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"
	"testing/iotest"
)

const (
	formType = "multipart/form-data; boundary=xx"
	modelIs  = "--xx\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n"
	fileIs   = "--xx\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: audio/wav\r\n\r\nsound\r\n"
	formEnds = "--xx--\r\n"
)

func TestScanForm(t *testing.T) {
	prompt := "--xx\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n\"quoted\" \\ text\r\n"
	for name, in := range map[string]io.Reader{
		"at once":     strings.NewReader(fileIs + prompt + modelIs + formEnds),
		"by the byte": iotest.OneByteReader(strings.NewReader(fileIs + prompt + modelIs + formEnds)),
		"no last end": strings.NewReader(fileIs + prompt + modelIs + "--xx--"),
	} {
		r, err := ScanForm(Transcriptions, "", formType, in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f := r.Creation.Files
		if r.Model != "whisper-1" || len(f) != 1 || f[0].Size != 5 || string(f[0].Head) != "sound" || len(r.Inputs) != 1 {
			t.Errorf("%s: %+v %+v", name, r, f)
		}
		if got := string(r.Unquote(nil, r.Inputs[0])); got != `"quoted" \ text` {
			t.Errorf("%s: prompt %q", name, got)
		}
	}
}

// TestFormModel: only the model in a form changes, in place.
func TestFormModel(t *testing.T) {
	body := fileIs + modelIs + formEnds
	r, err := ScanForm(Transcriptions, "", formType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Form.Source = strings.NewReader(body)
	for model, want := range map[string]string{
		"": body, `"large-v3"`: strings.Replace(body, "whisper-1", "large-v3", 1),
	} {
		out := r.Rewrite()
		if model != "" {
			out = r.Rewrite(Edit{"model", []byte(model)})
		}
		got, err := io.ReadAll(out.Reader())
		if err != nil || string(got) != want || out.Len() != int64(len(want)) || out.Type() != formType {
			t.Errorf("%s: %q, %d bytes, %s, %v", model, got, out.Len(), out.Type(), err)
		}
	}
}

// TestFormOfAPath: the model in the path counts, and gets a part if the form has none.
func TestFormOfAPath(t *testing.T) {
	part := strings.Replace(modelIs, "whisper-1", "large-v3", 1)
	for body, want := range map[string]string{
		fileIs + formEnds:           part + fileIs + formEnds,
		fileIs + modelIs + formEnds: fileIs + part + formEnds,
		fileIs + part + formEnds:    fileIs + part + formEnds,
	} {
		r, err := ScanForm(Transcriptions, "large-v3", formType, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Form.Source = strings.NewReader(body)
		out := r.Rewrite()
		got, err := io.ReadAll(out.Reader())
		if r.Model != "large-v3" || err != nil || string(got) != want || out.Len() != int64(len(want)) {
			t.Errorf("%s: %q, %d bytes, %v", r.Model, got, out.Len(), err)
		}
	}
}

// TestFormIdentity: equal forms are equal whatever their boundary, and different ones are not.
func TestFormIdentity(t *testing.T) {
	scan := func(boundary, text string) string {
		body := strings.ReplaceAll(fileIs+modelIs+formEnds, "--xx", "--"+boundary)
		r, err := ScanForm(Transcriptions, "", "multipart/form-data; boundary="+boundary, strings.NewReader(strings.Replace(body, "sound", text, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Body)
	}
	if scan("xx", "sound") != scan("other", "sound") {
		t.Error("the boundary counts")
	}
	if scan("xx", "sound") == scan("xx", "SOUND") {
		t.Error("the file does not count")
	}
}

func TestFormRefused(t *testing.T) {
	part := func(head, value string) string { return "--xx\r\n" + head + "\r\n\r\n" + value + "\r\n" }
	named := func(name string) string { return `Content-Disposition: form-data; name="` + name + `"` }
	for name, body := range map[string]string{
		"empty":               "",
		"no boundary":         "hello",
		"broken off":          fileIs + "--xx\r\nContent-Disp",
		"no end":              fileIs + "--xx\r\n" + named("model") + "\r\n\r\nwhisper-1",
		"bare line feeds":     strings.ReplaceAll(fileIs+modelIs+formEnds, "\r\n", "\n"),
		"boundary after LF":   part(named("file")+`; filename="a"`, "sound\n--xx\r\n"+named("model")+"\r\n\r\ntts-1") + modelIs + formEnds,
		"boundary and more":   part(named("file")+`; filename="a"`, "sound\r\n--xxy") + modelIs + formEnds,
		"text behind the end": fileIs + modelIs + formEnds + modelIs,
		"encoded part":        fileIs + part(named("model")+"\r\nContent-Transfer-Encoding: base64", "d2hpc3Blci0x") + formEnds,
		"another charset":     fileIs + modelIs + part(named("prompt")+"\r\nContent-Type: text/plain; charset=utf-16le", "h\x00i\x00") + formEnds,
		"a charset before":    fileIs + modelIs + part("content-type: text/plain; charset=\"latin1\"\r\n"+named("prompt"), "hi") + formEnds,
		"a name twice":        fileIs + modelIs + modelIs + formEnds,
		"a list of models":    fileIs + modelIs + part(named("model[]"), "tts-1") + formEnds,
		"only a list":         fileIs + part(named("model[]"), "tts-1") + formEnds,
		"a member of a list":  fileIs + part(named("model[0]"), "tts-1") + formEnds,
		"a list of files":     part(named("file[]")+`; filename="a"`, "sound") + modelIs + formEnds,
		"a control character": fileIs + part(named("model"), "tts\x00-1") + formEnds,
		"another spelling":    fileIs + modelIs + part(named("MODEL"), "tts-1") + formEnds,
		"two dispositions":    fileIs + part(named("model")+"\r\n"+named("prompt"), "x") + formEnds,
		"an extended name":    fileIs + part(`Content-Disposition: form-data; name*=utf-8''model`, "x") + formEnds,
		"an unknown file":     fileIs + modelIs + part(named("other")+`; filename="b"`, "x") + formEnds,
		"stream of a kind":    fileIs + modelIs + part(named("stream"), "yes") + formEnds,
		"text not UTF-8":      fileIs + modelIs + part(named("prompt"), "\xff") + formEnds,
		"large fields":        fileIs + modelIs + part(named("prompt"), strings.Repeat("x", maxFormFields)) + formEnds,
	} {
		_, err := ScanForm(Transcriptions, "", formType, strings.NewReader(body))
		var e *Error
		if !errors.As(err, &e) || e.Status != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
	cut := errors.New("cut")
	if _, err := ScanForm(Transcriptions, "", formType, io.MultiReader(strings.NewReader(fileIs), iotest.ErrReader(cut))); !errors.Is(err, cut) {
		t.Errorf("a failing reader: %v", err)
	}
}

// FuzzScanForm: the standard library reads the same model as we do.
func FuzzScanForm(f *testing.F) {
	f.Add(fileIs + modelIs + formEnds)
	f.Add(modelIs + fileIs + "--xx--")
	f.Add(fileIs + "\r\n--xx\r\n" + modelIs + formEnds)
	f.Fuzz(func(t *testing.T, body string) {
		r, err := ScanForm(Transcriptions, "", formType, strings.NewReader(body))
		if err != nil {
			return
		}
		if r.Form.Size != int64(len(body)) {
			t.Fatalf("%d bytes, not %d", r.Form.Size, len(body))
		}
		if got, _ := r.Form.Value("model"); got != r.Model {
			t.Fatalf("the form names model %q, not %q", got, r.Model)
		}
		std := multipart.NewReader(strings.NewReader(body), "xx")
		for {
			part, err := std.NextRawPart()
			if err != nil {
				break
			}
			data, _ := io.ReadAll(part)
			if part.FormName() == "model" && !bytes.Equal(data, []byte(r.Model)) {
				t.Fatalf("model %q, the standard library reads %q", r.Model, data)
			}
		}
	})
}

func TestLengths(t *testing.T) {
	wav := func(format, channels byte, rate uint16) []byte {
		perSecond := rate * 2 * uint16(channels)
		return append([]byte("RIFF....WAVELIST\x04\x00\x00\x00abcdfmt \x10\x00\x00\x00"),
			format, 0, channels, 0, byte(rate), byte(rate>>8), 0, 0, byte(perSecond), byte(perSecond>>8), 0, 0, 2*channels, 0, 16, 0,
			'd', 'a', 't', 'a', 0, 0, 0, 0)
	}
	for name, x := range map[string]struct {
		head   []byte
		size   int64
		millis int64
		exact  bool
	}{
		"mono":         {wav(1, 1, 8000), 56 + 16_000, 1000, true},
		"stereo":       {wav(1, 2, 8000), 56 + 16_001, 501, true},
		"compressed":   {wav(17, 1, 8000), 1000, 1001, false},
		"no rate":      {wav(1, 1, 0), 1000, 1001, false},
		"mp3":          {[]byte("ID3"), 5000, 5001, false},
		"beyond sense": {nil, 1 << 40, maxCount, false},
	} {
		c := Creation{Files: []File{{Head: x.head, Size: x.size}}}
		if n, exact := c.Length(); n != x.millis || exact != x.exact {
			t.Errorf("%s: %d ms, exact %v", name, n, exact)
		}
	}
	for name, x := range map[string]struct {
		head   string
		format string
		millis int64
		ok     bool
	}{
		"MPEG 1":     {"\xff\xfb\x90\xc4", "", 500, true},                                     // 128 kbit/s
		"MPEG 2":     {"\xff\xf3\x80\xc4", "mp3", 1000, true},                                 // 64 kbit/s
		"tagged":     {"ID3\x04\x00\x00\x00\x00\x00\x02..\xff\xfb\x90\xc4", "mp3", 500, true}, // 128 kbit/s
		"free rate":  {"\xff\xfb\x00\xc4", "mp3", 0, false},                                   // none given
		"opus":       {"OggS", "opus", 0, false},                                              //
		"raw":        {"", "pcm", 167, true},                                                  //
		"wrong name": {"\xff\xfb\x90\xc4", "aac", 0, false},                                   //
	} {
		if n, ok := SpokenLength([]byte(x.head), 8000, x.format); n != x.millis || ok != x.ok {
			t.Errorf("%s: %d ms, %v", name, n, ok)
		}
	}
}

func TestParseCreated(t *testing.T) {
	for _, x := range []struct {
		ep   Endpoint
		data string
		want Usage
		has  bool
		done bool
	}{
		{
			ImageGenerations, `{"data":[{},{}],"usage":{"input_tokens":50,"output_tokens":60,"total_tokens":110,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}}`,
			Usage{Input: 50, ImageIn: 40, Output: 60, ImageOut: 60},
			true, false,
		},
		{ImageEdits, `{"type":"image_edit.completed","usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`, Usage{Input: 1, Output: 2, ImageOut: 2}, true, true},
		{ImageEdits, `{"type":"image_edit.partial_image"}`, Usage{}, false, false},
		{Transcriptions, `{"text":"x","usage":{"type":"duration","seconds":2.5}}`, Usage{AudioMillis: 2500}, true, false},
		{Transcriptions, `{"text":"x","duration":"1.2345"}`, Usage{AudioMillis: 1235}, true, false},
		{Transcriptions, `{"text":"x","duration":-3}`, Usage{}, false, false},
		{
			Transcriptions, `{"type":"transcript.text.done","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":4,"audio_tokens":10},"output_tokens":5,"total_tokens":19}}`,
			Usage{Input: 14, AudioIn: 10, Output: 5},
			true, true,
		},
		{Speech, `{"type":"speech.audio.done","usage":{"input_tokens":1,"output_tokens":9,"total_tokens":10}}`, Usage{Input: 1, Output: 9, AudioOut: 9}, true, true},
		{Transcriptions, "plain words", Usage{}, false, false},
	} {
		got := ParseCreated(x.ep, []byte(x.data))
		if got.Usage != x.want || got.HasUsage != x.has || got.Done != x.done {
			t.Errorf("%s: %+v", x.data, got)
		}
	}
}

// TestFormBoundary: a form has one boundary, which every server reads as we do.
func TestFormBoundary(t *testing.T) {
	for given, want := range map[string]string{
		"multipart/form-data; boundary=xx":                          "multipart/form-data; boundary=xx",
		`Multipart/Form-Data;Boundary="xx"`:                         "multipart/form-data; boundary=xx",
		"multipart/form-data; boundary=xx; boundary=yy":             "",
		"multipart/form-data; boundary=yy; boundary=xx":             "",
		"multipart/form-data; boundary*=utf-8''xx":                  "",
		"multipart/form-data; boundary*0=x; boundary*1=x":           "",
		"multipart/form-data; boundary=xx; boundary*=utf-8''yy":     "",
		"multipart/form-data; boundary*=utf-8''yy; boundary=xx":     "",
		"multipart/form-data; charset=utf-8; boundary=xx":           "",
		"multipart/form-data; boundary=xx, multipart/form-data":     "",
		`multipart/form-data; boundary="x\x"`:                       "",
		`multipart/form-data; boundary="xx`:                         "",
		"multipart/form-data; boundary=xx\r\nX-Injected: y":         "",
		"multipart/form-data; boundary=xx; x=\"; boundary=yy; y=\"": "",
		"multipart/form-data":                                       "",
		"text/plain; boundary=xx":                                   "",
	} {
		body := strings.NewReader(fileIs + modelIs + formEnds)
		r, err := ScanForm(Transcriptions, "", given, body)
		got := ""
		if err == nil {
			got = r.Form.Type
		}
		if got != want {
			t.Errorf("%s: got %q, %v; want %q", given, got, err, want)
		}
	}
}
