package responses

import (
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
)

// part holds the parsed members of a content part, raw.
type part struct {
	kind, text                []byte
	image, detail             []byte
	file, name, fileID, where []byte
	audio                     []byte
}

func readPart(raw []byte) (p part, err error) {
	err = wire.EachMember(raw, func(key, value []byte) error {
		if !given(value) {
			return nil
		}
		switch string(key) {
		case "type":
			p.kind = value
		case "text", "refusal":
			p.text = value
		case "image_url":
			p.image = value
		case "detail":
			p.detail = value
		case "file_data":
			p.file = value
		case "filename":
			p.name = value
		case "file_id":
			p.fileID = value
		case "file_url":
			p.where = value
		case "input_audio":
			p.audio = value
		}
		return nil
	})
	return p, err
}

// isText reports whether the part is text only. A model's refusal counts as text when a
// conversation continues.
func (p *part) isText() bool {
	switch wire.Word(p.kind) {
	case "input_text", "output_text", "text", "refusal":
		return wire.IsString(p.text)
	}
	return false
}

// parts appends content: a string, or parts. If all parts are text, they are joined with join,
// which is in JSON form, because many servers accept only strings.
func (w *writer) parts(dst []byte, param string, content []byte, join string) ([]byte, error) {
	if wire.IsString(content) {
		return append(dst, content...), nil
	}
	list := make([]part, 0, 4)
	texts := true
	err := wire.EachItem(content, func(_ int, raw []byte) error {
		p, err := readPart(raw)
		list, texts = append(list, p), texts && p.isText()
		return err
	})
	if err != nil {
		return dst, asRefusal(err, param)
	}
	if texts {
		dst = append(dst, '"')
		for i := range list {
			if i > 0 {
				dst = append(dst, join...)
			}
			dst = append(dst, list[i].text[1:len(list[i].text)-1]...)
		}
		return append(dst, '"'), nil
	}
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst, err = list[i].append(dst, param+"["+strconv.Itoa(i)+"]")
		if err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// append appends the part in the form of chat.
func (p *part) append(dst []byte, param string) ([]byte, error) {
	kind := wire.Word(p.kind)
	switch {
	case p.isText():
		return append(append(append(dst, `{"type":"text","text":`...), p.text...), '}'), nil
	case p.fileID != nil:
		return dst, refuse(param+".file_id", "A file_id")
	case kind == "input_image" && wire.IsString(p.image):
		dst = append(append(dst, `{"type":"image_url","image_url":{"url":`...), p.image...)
		if p.detail != nil {
			dst = append(append(dst, `,"detail":`...), p.detail...)
		}
		return append(dst, "}}"...), nil
	case kind == "input_file" && wire.IsString(p.file):
		dst = append(append(dst, `{"type":"file","file":{"file_data":`...), p.file...)
		if p.name != nil {
			dst = append(append(dst, `,"filename":`...), p.name...)
		}
		return append(dst, "}}"...), nil
	case p.where != nil:
		return dst, refuse(param+".file_url", "A file_url")
	case kind == "input_audio" && p.audio != nil:
		return append(append(append(dst, `{"type":"input_audio","input_audio":`...), p.audio...), '}'), nil
	}
	return dst, refuse(param+".type", "Content of type "+shorten(p.kind))
}
