package wire

// count is one of the numbers that a usage object reports.
type count uint8

const (
	noCount count = iota
	countInput
	countOutput
	countTotal
	countCached       // read from the cache
	countCachedApart  // the same, never part of the prompt
	countWritten      // to the cache
	countWrittenApart // the same, never part of the prompt
	countWritten5m    // a part of countWritten
	countWritten1h    // the same
	countAudioIn
	countCachedAudio // a part of countCached and of countAudioIn
	countImageIn
	countAdded // to the input by searches
	countReasoning
	countAudioOut
	countImageOut
	countSearches
	countUnits // search units of a reranking
	counts
)

// section is an object of an answer that contains counts.
type section uint8

const (
	noSection section = iota
	usageSection
	inputSection
	outputSection
	cachedSection
	writtenSection
	searchSection
	timingSection
	nativeSection
	pluginSection
	toolSection
)

// place is a member of a section.
type place struct {
	in   section
	name string
}

// meaning is what a member holds: a count, or a section with more members. A member of rank 1 takes
// precedence over others with the same count.
type meaning struct {
	count   count
	opens   section
	rank    uint8
	servers string
}

// usagePlaces are all members that servers are known to report counts in. The test of each server's
// shape names its source.
var usagePlaces = map[place]meaning{
	{usageSection, "prompt_tokens"}:     {count: countInput, rank: 1, servers: "OpenAI and most others"},
	{usageSection, "completion_tokens"}: {count: countOutput, rank: 1, servers: "OpenAI and most others"},
	{usageSection, "total_tokens"}:      {count: countTotal, rank: 1, servers: "OpenAI and most others"},
	{usageSection, "input_tokens"}:      {count: countInput, servers: "OpenAI, in responses; Anthropic, Qwen"},
	{usageSection, "output_tokens"}:     {count: countOutput, servers: "OpenAI, in responses; Anthropic, Qwen"},

	{usageSection, "prompt_tokens_details"}:     {opens: inputSection, servers: "OpenAI and most others"},
	{usageSection, "input_tokens_details"}:      {opens: inputSection, servers: "OpenAI, in responses and pictures"},
	{usageSection, "input_token_details"}:       {opens: inputSection, servers: "OpenAI, in transcripts"},
	{usageSection, "completion_tokens_details"}: {opens: outputSection, servers: "OpenAI and most others"},
	{usageSection, "output_tokens_details"}:     {opens: outputSection, servers: "OpenAI, in responses"},
	{usageSection, "output_token_details"}:      {opens: outputSection, servers: "OpenAI, in transcripts"},

	{inputSection, "cached_tokens"}:           {count: countCached, rank: 1, servers: "OpenAI and most others"},
	{inputSection, "cached_tokens_details"}:   {opens: cachedSection, servers: "OpenAI, with audio"},
	{inputSection, "cache_write_tokens"}:      {count: countWritten, rank: 1, servers: "OpenAI, OpenRouter"},
	{inputSection, "cache_creation_tokens"}:   {count: countWritten, rank: 1, servers: "LiteLLM"},
	{inputSection, "cache_write_1h_tokens"}:   {count: countWritten1h, rank: 1, servers: "gateways to Anthropic"},
	{inputSection, "audio_tokens"}:            {count: countAudioIn, servers: "OpenAI"},
	{inputSection, "image_tokens"}:            {count: countImageIn, servers: "OpenAI, of pictures"},
	{inputSection, "web_search_requests"}:     {count: countSearches, servers: "LiteLLM to Gemini"},
	{outputSection, "reasoning_tokens"}:       {count: countReasoning, rank: 1, servers: "OpenAI and most others"},
	{outputSection, "thinking_tokens"}:        {count: countReasoning, servers: "Anthropic"},
	{outputSection, "audio_tokens"}:           {count: countAudioOut, servers: "OpenAI"},
	{outputSection, "image_tokens"}:           {count: countImageOut, servers: "OpenAI, OpenRouter"},
	{cachedSection, "audio_tokens"}:           {count: countCachedAudio, servers: "OpenAI, with audio"},
	{usageSection, "reasoning_tokens"}:        {count: countReasoning, servers: "SGLang, Perplexity"},
	{usageSection, "citation_tokens"}:         {count: countAdded, servers: "Perplexity"},
	{usageSection, "cached_tokens"}:           {count: countCached, servers: "Moonshot, Together"},
	{usageSection, "prompt_cache_hit_tokens"}: {count: countCached, servers: "DeepSeek"},

	{usageSection, "cache_read_input_tokens"}:        {count: countCached, servers: "Anthropic and gateways to it"},
	{usageSection, "cache_creation_input_tokens"}:    {count: countWritten, servers: "Anthropic and gateways to it"},
	{usageSection, "cache_creation"}:                 {opens: writtenSection, servers: "Anthropic"},
	{inputSection, "cache_creation_token_details"}:   {opens: writtenSection, servers: "LiteLLM"},
	{writtenSection, "ephemeral_5m_input_tokens"}:    {count: countWritten5m, servers: "Anthropic, LiteLLM"},
	{writtenSection, "ephemeral_1h_input_tokens"}:    {count: countWritten1h, servers: "Anthropic, LiteLLM"},
	{usageSection, "num_search_queries"}:             {count: countSearches, servers: "Perplexity"},
	{usageSection, "server_tool_use"}:                {opens: searchSection, servers: "Anthropic, LiteLLM"},
	{usageSection, "server_tool_use_details"}:        {opens: searchSection, servers: "OpenRouter"},
	{usageSection, "server_side_tool_usage_details"}: {opens: searchSection, servers: "xAI"},
	{searchSection, "web_search_requests"}:           {count: countSearches, servers: "Anthropic, LiteLLM, OpenRouter"},
	{searchSection, "web_search_calls"}:              {count: countSearches, servers: "xAI"},
	{usageSection, "plugins"}:                        {opens: pluginSection, servers: "Qwen"},
	{pluginSection, "search"}:                        {opens: toolSection, servers: "Qwen"},
	{usageSection, "x_tools"}:                        {opens: pluginSection, servers: "Qwen, in responses"},
	{pluginSection, "web_search"}:                    {opens: toolSection, servers: "Qwen, in responses"},
	{toolSection, "count"}:                           {count: countSearches, servers: "Qwen"},
	{toolSection, "num_requests"}:                    {count: countSearches, servers: "OpenAI, in responses"},
	{usageSection, "search_units"}:                   {count: countUnits, servers: "Cohere, OpenRouter"},
	{usageSection, "billed_units"}:                   {opens: usageSection, servers: "Cohere"},
	{usageSection, "inputTokens"}:                    {count: countInput, servers: "Bedrock"},
	{usageSection, "outputTokens"}:                   {count: countOutput, servers: "Bedrock"},
	{usageSection, "totalTokens"}:                    {count: countTotal, servers: "Bedrock"},
	{usageSection, "cacheReadInputTokens"}:           {count: countCachedApart, servers: "Bedrock"},
	{usageSection, "cacheWriteInputTokens"}:          {count: countWrittenApart, servers: "Bedrock"},
	{timingSection, "prompt_n"}:                      {count: countInput, servers: "llama.cpp"},
	{timingSection, "cache_n"}:                       {count: countCachedApart, servers: "llama.cpp"},
	{timingSection, "predicted_n"}:                   {count: countOutput, servers: "llama.cpp"},
	{nativeSection, "promptTokenCount"}:              {count: countInput, servers: "Gemini in its own form"},
	{nativeSection, "cachedContentTokenCount"}:       {count: countCached, servers: "Gemini in its own form"},
	{nativeSection, "candidatesTokenCount"}:          {count: countOutput, servers: "Gemini in its own form"},
	{nativeSection, "thoughtsTokenCount"}:            {count: countReasoning, servers: "Gemini in its own form"},
	{nativeSection, "totalTokenCount"}:               {count: countTotal, servers: "Gemini in its own form"},
}

// usageRoots are the members of an answer, next to usage, that contain counts. They are read if
// usage is absent or has none.
var usageRoots = map[string]struct {
	opens   section
	servers string
}{
	"x_groq":        {noSection, "Groq: it has a usage"},
	"timings":       {timingSection, "llama.cpp"},
	"usageMetadata": {nativeSection, "Gemini in its own form"},
	"meta":          {usageSection, "Cohere: it has billed_units"},
}
