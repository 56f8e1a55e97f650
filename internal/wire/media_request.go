package wire

import "unicode/utf8"

// The endpoints that make pictures, speech and transcripts.
const (
	ImageGenerations Endpoint = "images.generations"
	ImageEdits       Endpoint = "images.edits"
	ImageVariations  Endpoint = "images.variations"
	Speech           Endpoint = "audio.speech"
	Transcriptions   Endpoint = "audio.transcriptions"
	Translations     Endpoint = "audio.translations"
)

var (
	_ = endpoint(ImageGenerations, Traits{
		Path: "/images/generations", Makes: Pictures, AnswerBytes: mediaBytes, fields: pictureFields,
		content: []string{"data"}, defaults: impliedPicture, complete: needs("prompt"),
	})
	_ = endpoint(ImageEdits, Traits{
		Path: "/images/edits", Form: true, Makes: Pictures, AnswerBytes: mediaBytes, content: []string{"data"},
		file: "image", defaults: impliedPicture, complete: needs("prompt"),
	})
	_ = endpoint(ImageVariations, Traits{
		Path: "/images/variations", Form: true, Makes: Pictures, AnswerBytes: mediaBytes, content: []string{"data"},
		file: "image", defaults: impliedPicture,
	})
	_ = endpoint(Speech, Traits{
		Path: "/audio/speech", Makes: Sound, AnswerBytes: mediaBytes, fields: speechFields, content: []string{"data"},
		complete: needs("input"),
	})
	_ = endpoint(Transcriptions, Traits{
		Path: "/audio/transcriptions", Form: true, Makes: Transcripts, content: []string{"text"}, file: "file",
	})
	_ = endpoint(Translations, Traits{
		Path: "/audio/translations", Form: true, Makes: Transcripts, content: []string{"text"}, file: "file",
	})
)

// mediaBytes estimates the size of pictures or sound in an answer.
func mediaBytes(r *Request) int64 { return max(r.N, 1) * (4 << 20) }

func impliedPicture(r *Request) bool {
	r.Model, r.Implied = "dall-e-2", true
	return true
}

// Creation is what affects the price of a request for pictures, speech or a transcript, besides the
// common fields of [Request]. Its texts are the Request's Inputs.
type Creation struct {
	// Size, Quality and Fidelity (of input pictures) are as sent, or "".
	Size, Quality, Fidelity string
	// Partial is the number of unfinished versions of each picture in a stream, 0 to 3.
	Partial int64
	// Format is response_format as sent, or "", and Picture is output_format.
	Format, Picture string
	// Frames is the number of frames of an animation: frame_count as sent, or 0.
	Frames int64
	// Characters is the length of the text to speak.
	Characters int64
	// Files are the parts of a form that contain files, in order.
	Files []File
}

// Pictures returns the number of pictures in one requested picture: the frames of an animation, or
// 1.
func (c *Creation) Pictures() int64 {
	switch {
	case c.Frames > 0:
		return c.Frames
	case c.Picture == "gif":
		return defaultFrames
	}
	return 1
}

const (
	maxPictures = 10
	maxPartial  = 3
	maxFrames   = 16

	defaultFrames = 9
)

var pictureFields = newFields(map[string]reader{
	"model":   readModel,
	"prompt":  readPrompt,
	"n":       readInt("n", 1, maxPictures, func(s *scanner) *int64 { return &s.req.N }),
	"size":    readWord("size", func(s *scanner) *string { return &s.req.creation().Size }),
	"quality": readWord("quality", func(s *scanner) *string { return &s.req.creation().Quality }),
	"partial_images": readInt("partial_images", 0, maxPartial, func(s *scanner) *int64 {
		return &s.req.creation().Partial
	}),
	"response_format": readWord("response_format", func(s *scanner) *string { return &s.req.creation().Format }),
	"stream":          readBool("stream", func(s *scanner) *bool { return &s.req.Stream }),
	"service_tier":    readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
	"output_format":   readWord("output_format", func(s *scanner) *string { return &s.req.creation().Picture }),
	"frame_count":     readInt("frame_count", 1, maxFrames, func(s *scanner) *int64 { return &s.req.creation().Frames }),
}, readUnknown, "background frame_duration_ms moderation output_compression safety_identifier style user")

var speechFields = newFields(map[string]reader{
	"model":           readModel,
	"input":           readSpoken,
	"instructions":    readInputText("instructions"),
	"response_format": readWord("response_format", func(s *scanner) *string { return &s.req.creation().Format }),
	"stream_format":   readStreamFormat,
	"service_tier":    readWord("service_tier", func(s *scanner) *string { return &s.req.ServiceTier }),
}, readUnknown, "speed voice")

// AsText reports whether a transcript is asked for as text or captions, not as JSON.
func (c *Creation) AsText() bool { return c.Format == "text" || c.Format == "srt" || c.Format == "vtt" }

// creation returns the request's Creation, allocated in the first call.
func (r *Request) creation() *Creation {
	if r.Creation == nil {
		r.Creation = &Creation{}
	}
	return r.Creation
}

// readInputText reads a text that is part of the prompt.
func readInputText(param string) reader {
	return func(s *scanner) error {
		at, err := s.stringAt(param)
		s.req.Inputs = append(s.req.Inputs, Text{KindInput, at})
		return err
	}
}

func readPrompt(s *scanner) error {
	s.req.InputItems = 1
	return readInputText("prompt")(s)
}

// readSpoken reads the text to speak and counts its characters, by which some models are billed.
func readSpoken(s *scanner) error {
	s.req.InputItems = 1
	if err := readInputText("input")(s); err != nil {
		return err
	}
	t := s.req.Inputs[len(s.req.Inputs)-1]
	s.req.creation().Characters = int64(utf8.RuneCount(s.req.Unquote(nil, t)))
	return nil
}

func readStreamFormat(s *scanner) error {
	form, err := s.word("stream_format")
	s.req.Stream = form == "sse"
	return err
}
