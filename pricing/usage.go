package pricing

// MaxCount is the largest count accepted in a usage field, far above any model's context. Larger
// ones are from a broken or hostile answer.
const MaxCount = 1 << 30

// Usage is what a call consumed, in tokens unless the name says otherwise. The zero value is a call
// that consumed nothing.
type Usage struct {
	// Input counts all input tokens. CachedInput, CacheWrite and CacheWrite1h are disjoint parts of
	// it (read from the provider's cache; written to it for the default time; written for an hour).
	// AudioIn and ImageIn are parts of Input too, and may overlap the cache classes. CachedAudio, below,
	// is the part of AudioIn that is known to be in CachedInput too.
	Input, CachedInput, CacheWrite, CacheWrite1h int64
	AudioIn, ImageIn                             int64
	// Output counts all output tokens. Reasoning, AudioOut and ImageOut are parts of it; reasoning
	// has the price of output.
	Output, Reasoning, AudioOut, ImageOut int64
	// Requests and ToolCalls are counts of calls, for per-call fees.
	Requests, ToolCalls int64
	// Images counts generated pictures, Characters those of spoken text, AudioMillis is the length
	// of input audio, for prices based on these.
	Images      int64 `json:",omitempty"`
	Characters  int64 `json:",omitempty"`
	AudioMillis int64 `json:",omitempty"`
	CachedAudio int64 `json:",omitempty"`
	// SearchUnits are what some vendors bill a reranking by: a query with up to 100 documents.
	SearchUnits int64 `json:",omitempty"`
}

// Clamp returns the usage with every number in [0, MaxCount] and no part larger than its whole, and
// the names of the fields that were out of range, nil if there were none. Classes that exceed Input
// only in sum are reported but kept: [Price.Charge] never counts more tokens than Input.
func (u Usage) Clamp() (Usage, []string) {
	var faults []string
	u.Input = clamp(u.Input, MaxCount, "input", &faults)
	u.Output = clamp(u.Output, MaxCount, "output", &faults)
	u.CachedInput = clamp(u.CachedInput, u.Input, "cached_input", &faults)
	u.CacheWrite = clamp(u.CacheWrite, u.Input, "cache_write", &faults)
	u.CacheWrite1h = clamp(u.CacheWrite1h, u.Input, "cache_write_1h", &faults)
	if u.CachedInput+u.CacheWrite+u.CacheWrite1h > u.Input {
		faults = append(faults, "cache classes together")
	}
	u.AudioIn = clamp(u.AudioIn, u.Input, "audio_in", &faults)
	u.CachedAudio = clamp(u.CachedAudio, min(u.CachedInput, u.AudioIn), "cached_audio_in", &faults)
	u.ImageIn = clamp(u.ImageIn, u.Input, "image_in", &faults)
	u.Reasoning = clamp(u.Reasoning, u.Output, "reasoning", &faults)
	u.AudioOut = clamp(u.AudioOut, u.Output, "audio_out", &faults)
	u.ImageOut = clamp(u.ImageOut, u.Output, "image_out", &faults)
	u.Requests = clamp(u.Requests, MaxCount, "requests", &faults)
	u.ToolCalls = clamp(u.ToolCalls, MaxCount, "tool_calls", &faults)
	u.Images = clamp(u.Images, MaxCount, "images", &faults)
	u.Characters = clamp(u.Characters, MaxCount, "characters", &faults)
	u.AudioMillis = clamp(u.AudioMillis, MaxCount, "audio_ms", &faults)
	u.SearchUnits = clamp(u.SearchUnits, MaxCount, "search_units", &faults)
	return u, faults
}

func clamp(v, limit int64, name string, faults *[]string) int64 {
	if v >= 0 && v <= limit {
		return v
	}
	*faults = append(*faults, name)
	return max(0, min(v, limit))
}
