package wire

import "bytes"

// maxMessages bounds the memory that empty messages can take; it is several
// times what OpenAI allows.
const maxMessages = 1 << 14

var messageFields = newFields(map[string]reader{
	"role":          readWord("messages[].role", func(s *scanner) *string { return &s.message().Role }),
	"content":       (*scanner).readContent,
	"refusal":       readText("messages[].refusal", KindRefusal),
	"name":          readText("messages[].name", KindName),
	"tool_calls":    (*scanner).readToolCalls,
	"function_call": (*scanner).readCalledFunction,
	"tool_call_id":  (*scanner).readToolCallID,
	"audio":         (*scanner).readEarlierAudio,
	"cache_control": (*scanner).readCacheControl,
}, (*scanner).otherOfMessage)

// message returns the message being read.
func (s *scanner) message() *Message { return &s.req.Messages[len(s.req.Messages)-1] }

func (s *scanner) readMessages() error {
	if s.peek() != '[' {
		return s.wrongType("messages", "an array of objects")
	}
	r := s.req
	r.Messages = make([]Message, 0, 4)
	err := s.array(func(i int) error {
		if i == maxMessages {
			return BadRequest("messages", "array_above_max_length",
				"Invalid 'messages': array too long. Expected an array with maximum length %d.", maxMessages)
		}
		s.index[0] = i
		return s.readMessage()
	})
	if err == nil && len(r.Messages) == 0 {
		return empty("messages")
	}
	return err
}

func (s *scanner) readMessage() error {
	if s.peek() != '{' {
		return s.wrongType("messages[]", "an object")
	}
	r := s.req
	r.Messages = append(r.Messages, Message{})
	first := len(r.texts)
	err := s.members(messageFields)
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

// told are the members of messages and their parts that vendors add to answers and
// clients send back: what they mention is not asked for.
var told = map[string]bool{
	"annotations": true, "citations": true, "index": true, "logprobs": true, "phase": true, "reasoning": true,
	"reasoning_content": true, "reasoning_details": true, "signature": true, "thinking": true, "thinking_blocks": true,
}

// otherMention adds a value OpenAI does not define to the texts of the message,
// as a provider may take it for part of the prompt, and notes what it mentions.
func (s *scanner) otherMention(name []byte) (err error) {
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

// otherOfMessage is otherMention for a member of a message. With an address in it, it
// may be a document.
func (s *scanner) otherOfMessage(name []byte) error {
	start := s.pos
	err := s.otherMention(name)
	if err == nil && !told[string(name)] && hasAddress(s.buf[start:s.pos]) {
		m := s.message()
		m.Files = append(m.Files, Media{Remote: true})
	}
	return err
}

// hasAddress reports whether raw JSON has a string that may be an address.
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

// otherContent is otherMention for a part of the content. It may be a document,
// of any length.
func (s *scanner) otherContent(name []byte) error {
	first := s.peek()
	if !told[string(name)] && !small[string(name)] && (first == '"' || first == '{' || first == '[') {
		m := s.message()
		m.Files = append(m.Files, Media{Remote: true})
	}
	return s.otherMention(name)
}

var partFields = newFields(map[string]reader{
	"type":          (*scanner).readPartType,
	"text":          readText("messages[].content[].text", KindContent),
	"refusal":       readText("messages[].content[].refusal", KindRefusal),
	"image_url":     (*scanner).readImage,
	"input_audio":   (*scanner).readAudio,
	"file":          (*scanner).readFile,
	"cache_control": (*scanner).readCacheControl,
}, (*scanner).otherContent)

func (s *scanner) readContent() error {
	switch s.peek() {
	case '"':
		return s.addText("messages[].content", KindContent)
	case '[':
		return s.array(func(i int) error {
			s.index[1] = i
			if s.peek() != '{' {
				return s.wrongType("messages[].content[]", "an object")
			}
			return s.members(partFields)
		})
	}
	return s.wrongType("messages[].content", "a string or an array of objects")
}

func (s *scanner) readPartType() error {
	_, err := s.stringAt("messages[].content[].type")
	return err
}

var imageFields = newFields(map[string]reader{
	"url": func(s *scanner) (err error) {
		s.image().URL, err = s.stringAt("messages[].content[].image_url.url")
		return err
	},
	"detail": readWord("messages[].content[].image_url.detail", func(s *scanner) *string { return &s.image().Detail }),
}, (*scanner).otherContent)

func (s *scanner) image() *Image {
	m := s.message()
	return &m.Images[len(m.Images)-1]
}

// readImage takes the bare address that some providers allow, too.
func (s *scanner) readImage() (err error) {
	m := s.message()
	m.Images = append(m.Images, Image{})
	switch s.peek() {
	case '{':
		return s.members(imageFields)
	case '"':
		s.image().URL, err = s.stringAt("")
		return err
	}
	return s.wrongType("messages[].content[].image_url", "an object")
}

var audioFields = newFields(map[string]reader{
	"data": func(s *scanner) (err error) {
		s.audio().Data, err = s.stringAt("messages[].content[].input_audio.data")
		return err
	},
	"format": readWord("messages[].content[].input_audio.format", func(s *scanner) *string { return &s.audio().Format }),
}, (*scanner).otherContent)

func (s *scanner) audio() *Media {
	m := s.message()
	return &m.Audio[len(m.Audio)-1]
}

func (s *scanner) readAudio() error {
	if s.peek() != '{' {
		return s.wrongType("messages[].content[].input_audio", "an object")
	}
	m := s.message()
	m.Audio = append(m.Audio, Media{})
	return s.members(audioFields)
}

var earlierAudioFields = newFields(map[string]reader{
	"id": readWord("messages[].audio.id", func(s *scanner) *string { return &s.audio().ID }),
}, nil)

// readEarlierAudio reads a reference to the audio of an earlier answer.
func (s *scanner) readEarlierAudio() error {
	if s.peek() != '{' {
		return s.wrongType("messages[].audio", "an object")
	}
	m := s.message()
	m.Audio = append(m.Audio, Media{})
	return s.members(earlierAudioFields)
}

var fileFields = newFields(map[string]reader{
	"file_data": func(s *scanner) (err error) {
		s.file().Data, err = s.stringAt("messages[].content[].file.file_data")
		return err
	},
	"file_id":  (*scanner).readFileID,
	"filename": readWord("messages[].content[].file.filename", func(s *scanner) *string { return &s.file().Name }),
}, nil)

// readFileID reads the id of a file that the provider keeps.
func (s *scanner) readFileID() error {
	const param = "messages[].content[].file.file_id"
	id, err := s.word(param)
	if err != nil {
		return err
	}
	s.file().ID = id
	return s.addRef(RefFile, id, s.param(param))
}

func (s *scanner) file() *Media {
	m := s.message()
	return &m.Files[len(m.Files)-1]
}

func (s *scanner) readFile() error {
	if s.peek() != '{' {
		return s.wrongType("messages[].content[].file", "an object")
	}
	m := s.message()
	m.Files = append(m.Files, Media{})
	return s.members(fileFields)
}

var toolCallFields = newFields(map[string]reader{
	"id":       (*scanner).readToolCallID,
	"type":     (*scanner).readToolCallID,
	"function": (*scanner).readCalledFunction,
	"custom":   (*scanner).readCalledFunction,
}, (*scanner).otherMention)

var calledFields = newFields(map[string]reader{
	"name":      readText("messages[].tool_calls[].function.name", KindToolCall),
	"arguments": readText("messages[].tool_calls[].function.arguments", KindToolCall),
	"input":     readText("messages[].tool_calls[].custom.input", KindToolCall),
}, (*scanner).otherMention)

func (s *scanner) readToolCalls() error {
	if s.peek() != '[' {
		return s.wrongType("messages[].tool_calls", "an array of objects")
	}
	return s.array(func(i int) error {
		s.index[1] = i
		if s.peek() != '{' {
			return s.wrongType("messages[].tool_calls[]", "an object")
		}
		return s.members(toolCallFields)
	})
}

func (s *scanner) readCalledFunction() error {
	if s.peek() != '{' {
		return s.wrongType("messages[].function_call", "an object")
	}
	return s.members(calledFields)
}

func (s *scanner) readToolCallID() error {
	_, err := s.stringAt("messages[].tool_call_id")
	return err
}
