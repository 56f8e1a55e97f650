package fakeprovider

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Images, speech and transcripts. Nothing is really generated: an image is a few bytes, speech
// is silence of a plausible length, and a transcript is invented text.

// creation is the content of such a request.
type creation struct {
	text, size, quality, format string
	partial                     int
	files                       [][]byte
}

var (
	_ = post("/v1/images/generations", answerCreation(answerPictures))
	_ = post("/v1/images/edits", answerCreation(answerPictures))
	_ = post("/v1/images/variations", answerCreation(answerPictures))
	_ = post("/v1/audio/speech", answerCreation(answerSpeech))
	_ = post("/v1/audio/transcriptions", answerCreation(answerTranscript))
	_ = post("/v1/audio/translations", answerCreation(answerTranscript))
)

// answerCreation reads such a request and calls handle.
func answerCreation(handle handler) handler {
	return func(x *exchange) error {
		if strings.HasPrefix(x.r.Header.Get("Content-Type"), "multipart/") {
			if err := x.q.unform(); err != nil {
				return err
			}
		}
		err := x.admit(x.q.creationFields)
		if err != nil || x.opening() {
			return err
		}
		return handle(x)
	}
}

// unform converts a form to fields like those of a JSON body.
func (q *Request) unform() error {
	form, files, err := q.form()
	if err != nil {
		return err
	}
	for _, f := range files {
		q.creation.files = append(q.creation.files, f.content)
	}
	fields := map[string]any{}
	for name, value := range form {
		fields[name] = value
		switch name {
		case "n", "partial_images":
			n, err := strconv.Atoi(value)
			fields[name] = n
			if err != nil {
				return invalid(name, "invalid_type", "Invalid type for '%s'.", name)
			}
		case "stream":
			fields[name] = value == "true"
		}
	}
	q.Body = encode(fields)
	return nil
}

// creationFields reads the fields of any of these requests.
func (q *Request) creationFields() error {
	c, streamed := &q.creation, ""
	err := q.read(map[string]any{
		"prompt": &c.text, "input": &c.text, "size": &c.size, "quality": &c.quality, "n": &q.N, "stream": &q.Stream,
		"partial_images": &c.partial, "response_format": &c.format, "stream_format": &streamed,
	})
	if err != nil {
		return err
	}
	q.N, q.Stream = max(q.N, 1), q.Stream || streamed == "sse"
	if q.N > 10 {
		return invalid("n", "integer_above_max_value", "Invalid 'n': expected at most 10, but got %d instead.", q.N)
	}
	if strings.Contains(q.Path, "/audio/tr") && len(c.files) != 1 {
		return invalid("file", "missing_required_parameter", "Missing required parameter: 'file'.")
	}
	q.UserText, q.Requested = c.text, 1
	return nil
}

// pictureTokens are the tokens of one image of 1024x1024, by quality.
var pictureTokens = map[string]int64{"low": 272, "medium": 1056, "high": 4160}

// answerPictures responds with as many images as requested.
func answerPictures(x *exchange) error {
	c, n := &x.q.creation, int64(x.q.N)
	if strings.HasPrefix(x.q.Model, "dall-e") {
		data := make([]map[string]string, n)
		for i := range data {
			data[i] = map[string]string{"url": fmt.Sprintf("https://images.invalid/%d.png", i)}
		}
		x.used(Usage{})
		x.finish(encode(map[string]any{"created": time.Now().Unix(), "data": data}))
		return nil
	}
	if c.quality == "" || c.quality == "auto" {
		c.quality = "medium"
	}
	if c.size == "" || c.size == "auto" {
		c.size = "1024x1024"
	}
	used := Usage{Prompt: countText(x.q.Model, c.text), Completion: pictureTokens[c.quality]}
	images := 300 * int64(len(c.files))
	used.Prompt += images
	picture := base64.StdEncoding.EncodeToString([]byte("a picture"))
	if x.q.Stream {
		return streamPictures(x, used, images, picture)
	}
	used.Completion *= n
	x.used(used)
	data := slices.Repeat([]map[string]string{{"b64_json": picture}}, x.q.N)
	body := map[string]any{
		"created": time.Now().Unix(), "data": data, "size": c.size, "quality": c.quality,
		"background": "opaque", "output_format": "png",
	}
	x.addUsage(body, imageUsage(used, images))
	x.finish(encode(body))
	return nil
}

func imageUsage(u Usage, images int64) map[string]any {
	return map[string]any{
		"input_tokens": u.Prompt, "output_tokens": u.Completion, "total_tokens": u.Total(),
		"input_tokens_details": map[string]any{"text_tokens": u.Prompt - images, "image_tokens": images},
	}
}

// events begins a stream and returns the function that sends an event; broken reports that the
// behavior cut it off.
func (x *exchange) events() (send func(kind string, more map[string]any) (broken bool)) {
	x.begin(http.StatusOK, "text/event-stream")
	sent := 0
	return func(kind string, more map[string]any) bool {
		if x.b.Cut != "" && sent >= x.b.After {
			x.reset()
			return true
		}
		sent++
		event := map[string]any{"type": kind}
		maps.Copy(event, more)
		_, _ = fmt.Fprintf(x.w, "event: %s\ndata: %s\n\n", kind, encode(event))
		_ = http.NewResponseController(x.w).Flush()
		return false
	}
}

func streamPictures(x *exchange, used Usage, images int64, picture string) error {
	kind := "image_generation"
	if strings.HasSuffix(x.q.Path, "edits") {
		kind = "image_edit"
	}
	c, send := &x.q.creation, x.events()
	for range x.q.N {
		for i := range c.partial {
			if send(kind+".partial_image", map[string]any{"b64_json": picture, "partial_image_index": i}) {
				return nil
			}
		}
		one := used
		one.Completion += 100 * int64(c.partial)
		x.s.log.update(x.rec, func(rec *Record) { rec.Usage = rec.Usage.Add(one) })
		more := map[string]any{"b64_json": picture, "size": c.size, "quality": c.quality, "created_at": time.Now().Unix()}
		x.addUsage(more, imageUsage(one, images))
		if send(kind+".completed", more) {
			return nil
		}
	}
	x.outcome(OK)
	return nil
}

// answerSpeech responds with 50 ms of silence per character.
func answerSpeech(x *exchange) error {
	c := &x.q.creation
	if c.text == "" || len([]rune(c.text)) > 4096 {
		return invalid("input", "string_above_max_length", "Invalid 'input': expected 1 to 4096 characters.")
	}
	n := len([]rune(c.text))
	used := Usage{Prompt: countText(x.q.Model, c.text), Completion: int64(n)}
	x.used(used)
	if x.q.Stream {
		send := x.events()
		for i := range 3 {
			if send("speech.audio.delta", map[string]any{"audio": base64.StdEncoding.EncodeToString([]byte{byte(i)})}) {
				return nil
			}
		}
		more := map[string]any{}
		x.addUsage(more, map[string]any{
			"input_tokens": used.Prompt, "output_tokens": used.Completion, "total_tokens": used.Total(),
		})
		send("speech.audio.done", more)
		x.outcome(OK)
		return nil
	}
	sound, kind := silence(c.format, n)
	if x.b.Cut != "" {
		x.begin(http.StatusOK, kind)
		_, _ = x.w.Write(sound[:len(sound)/2])
		_ = http.NewResponseController(x.w).Flush()
		x.reset()
		return nil
	}
	x.outcome(OK)
	x.begin(http.StatusOK, kind) // chunked, like OpenAI's
	for len(sound) > 0 {
		m := min(len(sound), 8<<10)
		_, _ = x.w.Write(sound[:m])
		_ = http.NewResponseController(x.w).Flush()
		sound = sound[m:]
	}
	return nil
}

// silence returns n times 50 ms of silence: raw PCM or WAV at 24 kHz, or MP3 at 64 kbit/s.
func silence(format string, n int) (data []byte, contentType string) {
	switch format {
	case "pcm":
		return make([]byte, n*2400), "audio/pcm"
	case "wav":
		return Wav(24_000, n*1200), "audio/wav"
	case "", "mp3":
		mp3 := make([]byte, n*400)
		copy(mp3, []byte{0xff, 0xfb, 0x50, 0xc4}) // MPEG 1, layer III, 64 kbit/s
		return mp3, "audio/mpeg"
	}
	return make([]byte, n*400), "audio/" + format
}

// Wav returns a silent mono recording with 16-bit samples.
func Wav(rate, samples int) []byte {
	b := append([]byte("RIFF\xff\xff\xff\xffWAVEfmt "), 16, 0, 0, 0, 1, 0, 1, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	b = binary.LittleEndian.AppendUint32(b, uint32(2*rate))
	b = append(b, 2, 0, 16, 0)
	b = append(b, "data\xff\xff\xff\xff"...)
	return append(b, make([]byte, 2*samples)...)
}

// answerTranscript responds with invented words; a recording is assumed to have 32,000 bytes
// per second.
func answerTranscript(x *exchange) error {
	c := &x.q.creation
	seconds := (len(c.files[0]) + 31_999) / 32_000
	text := cmp.Or(x.b.Text, "These are words nobody has said.")
	usage := map[string]any{"type": "duration", "seconds": seconds}
	used := Usage{}
	if !strings.HasPrefix(x.q.Model, "whisper") {
		audio := int64(seconds * 10)
		used = Usage{Prompt: audio + countText(x.q.Model, c.text), Completion: countText(x.q.Model, text)}
		usage = map[string]any{
			"type": "tokens", "input_tokens": used.Prompt, "output_tokens": used.Completion, "total_tokens": used.Total(),
			"input_token_details": map[string]any{"text_tokens": used.Prompt - audio, "audio_tokens": audio},
		}
	}
	x.used(used)
	body := map[string]any{"text": text}
	x.addUsage(body, usage)
	switch {
	case x.q.Stream && !strings.HasPrefix(x.q.Model, "whisper"):
		send := x.events()
		for _, word := range strings.SplitAfter(text, " ") {
			if send("transcript.text.delta", map[string]any{"delta": word}) {
				return nil
			}
		}
		send("transcript.text.done", body)
		x.outcome(OK)
	case c.format == "text" || c.format == "srt" || c.format == "vtt":
		return x.send("text/plain; charset=utf-8", []byte(text+"\n"), false)
	default:
		if c.format == "verbose_json" {
			body["duration"], body["language"] = float64(seconds), "english"
		}
		x.finish(encode(body))
	}
	return nil
}
