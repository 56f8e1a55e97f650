package fakeprovider

import (
	"encoding/json"
	"strconv"
)

// counts is a usage object before encoding; nil details are omitted.
type counts struct {
	prompt, total int64
	completion    *int64
	in, out       map[string]int64
	responses     bool // with the names that Responses uses
}

// chatUsage returns the usage with the names that chat completions use.
func chatUsage(u Usage) counts {
	c := counts{
		prompt: u.Prompt, completion: &u.Completion, total: u.Total(),
		in: map[string]int64{"cached_tokens": u.Cached, "audio_tokens": 0},
		out: map[string]int64{
			"reasoning_tokens": u.Reasoning, "audio_tokens": 0,
			"accepted_prediction_tokens": u.Accepted, "rejected_prediction_tokens": u.Rejected,
		},
	}
	if u.CacheWrite > 0 {
		c.in["cache_write_tokens"] = u.CacheWrite
	}
	return c
}

// embeddingUsage has input tokens only.
func embeddingUsage(u Usage) counts { return counts{prompt: u.Prompt, total: u.Prompt} }

// usage returns the usage object as modified by the behavior, or nil for none, and logs it.
func (x *exchange) usage(c counts) json.RawMessage {
	raw := x.b.usage(c)
	x.s.log.update(x.rec, func(rec *Record) { rec.Reported = string(raw) })
	return raw
}

func (b *Behaviour) usage(c counts) json.RawMessage {
	switch {
	case b.RawUsage != "":
		return json.RawMessage(b.RawUsage)
	case b.Usage == UsageNone:
		return nil
	case b.Usage == UsageNull:
		return json.RawMessage("null")
	case b.Usage == UsageBare:
		c.in, c.out = nil, nil
	}
	write := func(n int64) json.RawMessage { return b.number(n) }
	input, output := "prompt_tokens", "completion_tokens"
	if c.responses {
		input, output = "input_tokens", "output_tokens"
	}
	doc := map[string]any{input: write(c.prompt), "total_tokens": write(c.total)}
	if c.completion != nil {
		doc[output] = write(*c.completion)
	}
	for name, details := range map[string]map[string]int64{input + "_details": c.in, output + "_details": c.out} {
		if details == nil {
			continue
		}
		part := make(map[string]any, len(details))
		for k, n := range details {
			part[k] = write(n)
		}
		doc[name] = part
	}
	return encode(doc)
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
