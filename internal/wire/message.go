package wire

import "bytes"

// maxMessages bounds the memory that empty messages can take; it is several times what OpenAI
// allows.
const maxMessages = 1 << 14

var messageFields = newFields(map[string]reader{
	"role":          readWord("messages[].role", func(s *scanner) *string { return &s.message().Role }),
	"content":       readContent,
	"refusal":       readText("messages[].refusal", KindRefusal),
	"name":          readText("messages[].name", KindName),
	"tool_calls":    readToolCalls,
	"function_call": readMembers("messages[].function_call", calledFields),
	"tool_call_id":  readToolCallID,
	"audio":         readEarlierAudio,
	"cache_control": readCacheControl,
}, readOtherOfMessage)

func (s *scanner) message() *Message { return &s.req.Messages[len(s.req.Messages)-1] }

func readMessages(s *scanner) error {
	r := s.req
	r.Messages = make([]Message, 0, 4)
	err := s.objects("messages", 0, func() error {
		if len(r.Messages) == maxMessages {
			return BadRequest("messages", "array_above_max_length",
				"Invalid 'messages': array too long. Expected an array with maximum length %d.", maxMessages)
		}
		return readMessage(s)
	})
	if err == nil && len(r.Messages) == 0 {
		return empty("messages")
	}
	return err
}

func readMessage(s *scanner) error {
	r := s.req
	r.Messages = append(r.Messages, Message{})
	first := len(r.texts)
	err := s.members("messages[]", messageFields)
	s.message().Texts = r.texts[first:len(r.texts):len(r.texts)]
	return err
}

func empty(param string) *Error {
	return BadRequest(param, "empty_array",
		"Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
}

// addText reads a string and adds it to the texts of the message.
func (s *scanner) addText(param string, kind TextKind) error {
	at, err := s.stringAt(param)
	s.req.texts = append(s.req.texts, Text{kind, at})
	return err
}

func readText(param string, kind TextKind) reader {
	return func(s *scanner) error { return s.addText(param, kind) }
}

// told are the members of messages and their parts that vendors add to answers and clients send
// back: their mentions are not requests.
var told = map[string]bool{
	"annotations": true, "citations": true, "index": true, "logprobs": true, "phase": true, "reasoning": true,
	"reasoning_content": true, "reasoning_details": true, "signature": true, "thinking": true, "thinking_blocks": true,
}

// readOther adds a value that OpenAI does not define to the texts of the message, because a
// provider may treat it as part of the prompt, and records what it mentions.
func readOther(s *scanner, name []byte) (err error) {
	start, first := s.pos, s.peek()
	if told[string(name)] {
		err = s.walkUnasked()
	} else {
		err = s.walkMember(name)
	}
	if first == '"' || first == '{' || first == '[' {
		s.req.texts = append(s.req.texts, Text{KindOther, Span{start, s.pos}})
	}
	return err
}

// readOtherOfMessage is readOther for a member of a message. If it contains a URL, it may be a
// document.
func readOtherOfMessage(s *scanner, name []byte) error {
	start := s.pos
	err := readOther(s, name)
	if err == nil && !told[string(name)] && hasAddress(s.buf[start:s.pos]) {
		m := s.message()
		m.Files = append(m.Files, Media{Remote: true})
	}
	return err
}

// hasAddress reports whether raw JSON contains a string that may be a URL.
func hasAddress(raw []byte) bool {
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = appendUnquoted(nil, raw)
	}
	return bytes.Contains(raw, []byte("://")) || bytes.Contains(bytes.ToLower(raw), []byte(`"data:`))
}

// small are the members of parts that describe them.
var small = map[string]bool{
	"format": true, "id": true, "media_type": true, "mime_type": true, "name": true, "title": true, "tool_call_id": true,
}

// readOtherContent is readOther for a part of the content. It may be a document of any length.
func readOtherContent(s *scanner, name []byte) error {
	first := s.peek()
	if !told[string(name)] && !small[string(name)] && (first == '"' || first == '{' || first == '[') {
		m := s.message()
		m.Files = append(m.Files, Media{Remote: true})
	}
	return readOther(s, name)
}

var partFields = newFields(map[string]reader{
	"type":          readPartType,
	"text":          readText("messages[].content[].text", KindContent),
	"refusal":       readText("messages[].content[].refusal", KindRefusal),
	"image_url":     readImage,
	"input_audio":   readAudio,
	"file":          readFile,
	"cache_control": readCacheControl,
}, readOtherContent)

func readContent(s *scanner) error {
	switch s.peek() {
	case '"':
		return s.addText("messages[].content", KindContent)
	case '[':
		return s.objects("messages[].content", 1, func() error {
			return s.members("messages[].content[]", partFields)
		})
	}
	return s.wrongType("messages[].content", "a string or an array of objects")
}

func readPartType(s *scanner) error {
	_, err := s.stringAt("messages[].content[].type")
	return err
}

var imageFields = newFields(map[string]reader{
	"url": readSpan("messages[].content[].image_url.url", func(s *scanner) *Span { return &s.message().image().URL }),
	"detail": readWord("messages[].content[].image_url.detail", func(s *scanner) *string {
		return &s.message().image().Detail
	}),
}, readOtherContent)

func (m *Message) image() *Image { return &m.Images[len(m.Images)-1] }

// readImage also accepts the bare URL that some providers allow.
func readImage(s *scanner) (err error) {
	m := s.message()
	m.Images = append(m.Images, Image{})
	if s.peek() == '"' {
		m.image().URL, err = s.stringAt("")
		return err
	}
	return s.members("messages[].content[].image_url", imageFields)
}

var audioFields = newFields(map[string]reader{
	"data": readSpan("messages[].content[].input_audio.data", func(s *scanner) *Span {
		return &s.message().audio().Data
	}),
	"format": readWord("messages[].content[].input_audio.format", func(s *scanner) *string {
		return &s.message().audio().Format
	}),
}, readOtherContent)

func (m *Message) audio() *Media { return &m.Audio[len(m.Audio)-1] }

func readAudio(s *scanner) error {
	m := s.message()
	m.Audio = append(m.Audio, Media{})
	return s.members("messages[].content[].input_audio", audioFields)
}

var earlierAudioFields = newFields(map[string]reader{
	"id": readWord("messages[].audio.id", func(s *scanner) *string { return &s.message().audio().ID }),
}, nil)

// readEarlierAudio reads a reference to the audio of an earlier answer.
func readEarlierAudio(s *scanner) error {
	m := s.message()
	m.Audio = append(m.Audio, Media{})
	return s.members("messages[].audio", earlierAudioFields)
}

var fileFields = newFields(map[string]reader{
	"file_data": readSpan("messages[].content[].file.file_data", func(s *scanner) *Span {
		return &s.message().file().Data
	}),
	"file_id": readFileID,
	"filename": readWord("messages[].content[].file.filename", func(s *scanner) *string {
		return &s.message().file().Name
	}),
}, nil)

// readFileID reads the id of a file that the provider stores.
func readFileID(s *scanner) error {
	const param = "messages[].content[].file.file_id"
	id, err := s.word(param)
	if err != nil {
		return err
	}
	s.message().file().ID = id
	return s.addRef(ObjectFile, id, s.param(param))
}

func (m *Message) file() *Media { return &m.Files[len(m.Files)-1] }

func readFile(s *scanner) error {
	m := s.message()
	m.Files = append(m.Files, Media{})
	return s.members("messages[].content[].file", fileFields)
}

var toolCallFields = newFields(map[string]reader{
	"id":       readToolCallID,
	"type":     readToolCallID,
	"function": readMembers("messages[].function_call", calledFields),
	"custom":   readMembers("messages[].function_call", calledFields),
}, readOther)

var calledFields = newFields(map[string]reader{
	"name":      readText("messages[].tool_calls[].function.name", KindToolCall),
	"arguments": readText("messages[].tool_calls[].function.arguments", KindToolCall),
	"input":     readText("messages[].tool_calls[].custom.input", KindToolCall),
}, readOther)

func readToolCalls(s *scanner) error {
	return s.objects("messages[].tool_calls", 1, func() error {
		return s.members("messages[].tool_calls[]", toolCallFields)
	})
}

func readToolCallID(s *scanner) error {
	_, err := s.stringAt("messages[].tool_call_id")
	return err
}
