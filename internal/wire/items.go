package wire

import "slices"

// item is what was read of the current item of a Responses input.
type item struct {
	kind, id  string
	texts     int    // number of the request's texts before it
	encrypted bool   // it has encrypted content
	content   bool   // it has a member content
	part      string // type of the current part of content
	image     Image
	builtin   [2]int // range in the request's BuiltinTools of those that it adds
}

// whole lists the types of items whose content is completely in the request, so that an id does not
// refer to anything.
var whole = map[string]bool{
	"message": true, "function_call": true, "function_call_output": true, "custom_tool_call": true,
	"custom_tool_call_output": true,
	"computer_call_output":    true, "local_shell_call": true, "local_shell_call_output": true, "shell_call": true,
	"shell_call_output": true,
	"apply_patch_call":  true, "apply_patch_call_output": true, "mcp_approval_response": true,
	"additional_tools": true, "tool_search_call": true, "tool_search_output": true,
}

var itemFields = newFields(map[string]reader{
	"type":                readWord("input[].type", func(s *scanner) *string { return &s.item.kind }),
	"id":                  readWord("input[].id", func(s *scanner) *string { return &s.item.id }),
	"role":                readWord("input[].role", func(s *scanner) *string { return &s.message().Role }),
	"content":             readItemContent,
	"summary":             readParts("input[].summary", false),
	"output":              readParts("input[].output", true),
	"name":                readText("input[].name", KindToolCall),
	"arguments":           readArguments,
	"input":               readText("input[].input", KindToolCall),
	"tools":               readItemTools,
	"encrypted_content":   readEncrypted,
	"approval_request_id": readRef(ObjectItem, "input[].approval_request_id"),
}, readOther, "call_id status created_by phase")

// readItems reads the input: a text, or items of any type. Each counts as a message.
func readItems(s *scanner) error {
	r := s.req
	switch s.peek() {
	case '"':
		beginMessage(s, "user")
		err := s.addText("input", KindContent)
		endMessage(s)
		return err
	case '[':
		return s.array(func(i int) error {
			if len(r.Messages) >= maxMessages {
				return BadRequest("input", "array_above_max_length",
					"Invalid 'input': array too long. Expected an array with maximum length %d.", maxMessages)
			}
			s.index[0] = i
			return readItem(s)
		})
	}
	return s.wrongType("input", "a string or an array of objects")
}

func readItem(s *scanner) error {
	s.item = item{}
	beginMessage(s, "")
	if err := s.members("input[]", itemFields); err != nil {
		return err
	}
	endMessage(s)
	it := s.item
	if it.kind == "mcp_list_tools" { // it lists the tools of a server and enables none
		s.req.BuiltinTools = slices.Delete(s.req.BuiltinTools, it.builtin[0], it.builtin[1])
	}
	switch {
	case it.id == "", whole[it.kind], it.kind == "" && it.content, it.encrypted:
		return nil
	}
	err := s.addRef(ObjectItem, it.id, s.param("input[].id"))
	if err == nil {
		s.req.Refs[len(s.req.Refs)-1].Reasoning = it.kind == "reasoning"
	}
	return err
}

// readArguments reads the arguments of a call: a text, or an object for a tool search.
func readArguments(s *scanner) error {
	if s.peek() == '{' {
		return readOther(s, []byte("arguments"))
	}
	return readText("input[].arguments", KindToolCall)(s)
}

func readItemContent(s *scanner) error {
	s.item.content = true
	return readParts("input[].content", true)(s)
}

// readEncrypted reads hidden reasoning or a compacted conversation.
func readEncrypted(s *scanner) error {
	at, err := s.stringAt("input[].encrypted_content")
	s.item.encrypted = at.Len() > len(`""`)
	s.req.texts = append(s.req.texts, Text{KindOther, at})
	return err
}

// readParts reads a text, a part or parts of content.
func readParts(param string, text bool) reader {
	return func(s *scanner) error {
		switch c := s.peek(); {
		case c == '"' && text:
			return s.addText(param, KindContent)
		case c == '{' && text:
			return readPart(s, param)
		case c == '[':
			return s.objects(param, 1, func() error { return readPart(s, param+"[]") })
		}
		return s.wrongType(param, "a string or an array of objects")
	}
}

var responsesPartFields = newFields(map[string]reader{
	"type":        readWord("input[].content[].type", func(s *scanner) *string { return &s.item.part }),
	"text":        readText("input[].content[].text", KindContent),
	"refusal":     readText("input[].content[].refusal", KindRefusal),
	"image_url":   readSpan("input[].content[].image_url", func(s *scanner) *Span { return &s.item.image.URL }),
	"detail":      readWord("input[].content[].detail", func(s *scanner) *string { return &s.item.image.Detail }),
	"file_id":     readRef(ObjectFile, "input[].content[].file_id"),
	"file_data":   readPartFile,
	"file_url":    readPartURL,
	"input_audio": readAudio,
}, readOtherContent, "filename annotations logprobs")

// readPart reads a part of content. A picture's detail may precede it.
func readPart(s *scanner, param string) error {
	s.item.image, s.item.part = Image{}, ""
	named := len(s.req.Refs)
	err := s.members(param, responsesPartFields)
	for i := named; i < len(s.req.Refs); i++ {
		s.req.Refs[i].Picture = s.item.part == "input_image" || s.item.part == "computer_screenshot"
	}
	if m := s.message(); !s.item.image.URL.IsZero() {
		m.Images = append(m.Images, s.item.image)
	}
	return err
}

func readPartFile(s *scanner) error {
	at, err := s.stringAt("input[].content[].file_data")
	m := s.message()
	m.Files = append(m.Files, Media{Data: at})
	return err
}

// readPartURL reads the URL of a file that the provider fetches.
func readPartURL(s *scanner) error {
	_, err := s.stringAt("input[].content[].file_url")
	m := s.message()
	m.Files = append(m.Files, Media{Remote: true})
	return err
}
