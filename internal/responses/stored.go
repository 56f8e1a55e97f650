package responses

import (
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// InputItems returns the input of a request as an array of items, each with an id, and with
// references replaced by their items.
func InputItems(r *wire.Request, items map[string][]byte) []byte {
	input := r.Member("input")
	dst := append(make([]byte, 0, len(input)+128), '[')
	if wire.IsString(input) {
		dst = append(append(dst, `{"id":"`...), neutral.NewID("msg_")...)
		dst = append(dst, `","type":"message","role":"user","content":[{"type":"input_text","text":`...)
		return append(append(dst, input...), "}]}]"...)
	}
	_ = wire.EachItem(input, func(i int, item []byte) error { // it was validated before
		var it inputItem
		_ = neutral.Read(item, &it)
		if found, ok := items[wire.Word(it.ID)]; ok && it.Content == nil && it.CallID == nil {
			item = found
			_ = neutral.Read(item, &it)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, complete(item, &it)...)
		return nil
	})
	return append(dst, ']')
}

// complete returns an item with an id and a type.
func complete(item []byte, it *inputItem) raw {
	if it.ID != nil && it.Type != nil {
		return item
	}
	out := make(raw, 0, len(item)+128)
	if it.ID == nil {
		out = neutral.With(out, "id", wire.AppendQuoted(nil, neutral.NewID(prefixes[wire.Word(it.Type)])))
	}
	if it.Type == nil {
		out = neutral.With(out, "type", raw(`"message"`))
	}
	_ = wire.EachMember(item, func(name, value []byte) error { // it was read before
		if n := string(name); n != "id" && n != "type" || string(value) != "null" {
			out = neutral.With(out, n, value)
		}
		return nil
	})
	return out
}

// prefixes are the id prefixes of items.
var prefixes = map[string]string{
	"": "msg_", "message": "msg_", "function_call": "fc_", "function_call_output": "fco_",
	"reasoning": "rs_",
}

// Output returns the raw output of a response, or nil if it has none.
func Output(response []byte) []byte { return neutral.Member(response, "output") }

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
func ItemID(item []byte) string { return wire.Word(neutral.Member(item, "id")) }
