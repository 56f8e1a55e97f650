package responses

import (
	"bytes"

	"github.com/llmguard/llmguard/internal/wire"
)

// InputItems returns the input of a request as an array of items, each with an id, and with
// references replaced by their items.
func InputItems(r *wire.Request, items map[string][]byte) []byte {
	input := r.Member("input")
	dst := append(make([]byte, 0, len(input)+128), '[')
	if wire.IsString(input) {
		dst = append(append(dst, `{"id":"`...), NewID("msg_")...)
		dst = append(dst, `","type":"message","role":"user","content":[{"type":"input_text","text":`...)
		return append(append(dst, input...), "}]}]"...)
	}
	_ = wire.EachItem(input, func(i int, raw []byte) error { // it was validated before
		it, _ := readItem(raw)
		if found, ok := items[wire.Word(it.id)]; ok && it.content == nil && it.callID == nil {
			raw = found
			it.id = []byte(`""`)
			it.kind = []byte(`""`)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		if it.id == nil {
			dst = append(append(append(dst, `"id":"`...), NewID(prefixes[wire.Word(it.kind)])...), `",`...)
		}
		if it.kind == nil {
			dst = append(dst, `"type":"message",`...)
		}
		dst = append(dst, bytes.TrimLeft(raw, " \t\r\n")[1:]...)
		return nil
	})
	return append(dst, ']')
}

// prefixes are the id prefixes of items.
var prefixes = map[string]string{
	"": "msg_", "message": "msg_", "function_call": "fc_", "function_call_output": "fco_",
	"reasoning": "rs_",
}

// Output returns the raw output of a response, or nil if it has none.
func Output(response []byte) []byte {
	var out []byte
	_ = wire.EachMember(response, func(key, value []byte) error { // written by us
		if string(key) == "output" {
			out = value
		}
		return nil
	})
	return out
}

// Item returns the item with this id, or nil.
func Item(items []byte, id string) []byte {
	var found []byte
	_ = wire.EachItem(items, func(_ int, raw []byte) error { // written by us
		if ItemID(raw) == id {
			found = raw
		}
		return nil
	})
	return found
}

// ItemID returns the id of an item, or "".
func ItemID(item []byte) string {
	it, err := readItem(item)
	if err != nil {
		return ""
	}
	return wire.Word(it.id)
}
