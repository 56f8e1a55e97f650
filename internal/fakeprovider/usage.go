package fakeprovider

import (
	"encoding/json"
	"maps"
	"strconv"
)

// chatUsage returns the usage with the names that chat completions use. The numbers of all usage
// objects are int64, and the objects in them map[string]any.
func chatUsage(u Usage) map[string]any {
	in := map[string]any{"cached_tokens": u.Cached, "audio_tokens": int64(0)}
	if u.CacheWrite > 0 {
		in["cache_write_tokens"] = u.CacheWrite
	}
	return map[string]any{
		"prompt_tokens": u.Prompt, "completion_tokens": u.Completion, "total_tokens": u.Total(),
		"prompt_tokens_details": in,
		"completion_tokens_details": map[string]any{
			"reasoning_tokens": u.Reasoning, "audio_tokens": int64(0),
			"accepted_prediction_tokens": int64(0), "rejected_prediction_tokens": int64(0),
		},
	}
}

// embeddingUsage has input tokens only.
func embeddingUsage(u Usage) map[string]any {
	return map[string]any{"prompt_tokens": u.Prompt, "total_tokens": u.Prompt}
}

// usage returns the usage object as modified by the behavior, or nil for none, and logs it.
func (x *exchange) usage(doc map[string]any) json.RawMessage {
	raw := x.b.usage(doc)
	x.s.log.update(x.rec, func(rec *Record) { rec.Reported = string(raw) })
	return raw
}

// addUsage adds the usage object to a body, if the behavior has one.
func (x *exchange) addUsage(body, usage map[string]any) {
	if raw := x.usage(usage); raw != nil {
		body["usage"] = raw
	}
}

func (b *Behaviour) usage(doc map[string]any) json.RawMessage {
	switch {
	case b.RawUsage != "":
		return json.RawMessage(b.RawUsage)
	case b.Usage == UsageNone:
		return nil
	case b.Usage == UsageNull:
		return json.RawMessage("null")
	case b.Usage == UsageBare:
		maps.DeleteFunc(doc, func(_ string, v any) bool {
			_, details := v.(map[string]any)
			return details
		})
	}
	return encode(b.numbers(doc))
}

// numbers returns a value with its counts as the usage mode requires.
func (b *Behaviour) numbers(v any) any {
	switch v := v.(type) {
	case int64:
		return b.number(v)
	case map[string]any:
		for name, member := range v {
			v[name] = b.numbers(member)
		}
	case []any:
		for i := range v {
			v[i] = b.numbers(v[i])
		}
	}
	return v
}

// number encodes one count as the usage mode requires.
func (b *Behaviour) number(n int64) json.RawMessage {
	switch b.Usage {
	case UsageNegative:
		return encode(-n)
	case UsageHuge:
		return json.RawMessage("1e30")
	case UsageZero:
		return json.RawMessage("0")
	case UsageString:
		return encode(strconv.FormatInt(n, 10))
	case UsageFraction:
		return encode(float64(n) + 0.5)
	}
	return encode(n)
}
