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
	count count
	opens section
	rank  uint8
}

// usagePlaces are all members that servers are known to report counts in. The test of each server's
// shape names its source.
var usagePlaces = map[place]meaning{
	{usageSection, "prompt_tokens"}:     {count: countInput, rank: 1},
	{usageSection, "completion_tokens"}: {count: countOutput, rank: 1},
	{usageSection, "total_tokens"}:      {count: countTotal, rank: 1},
	{usageSection, "input_tokens"}:      {count: countInput},
	{usageSection, "output_tokens"}:     {count: countOutput},

	{usageSection, "prompt_tokens_details"}:     {opens: inputSection},
	{usageSection, "input_tokens_details"}:      {opens: inputSection},
	{usageSection, "input_token_details"}:       {opens: inputSection},
	{usageSection, "completion_tokens_details"}: {opens: outputSection},
	{usageSection, "output_tokens_details"}:     {opens: outputSection},
	{usageSection, "output_token_details"}:      {opens: outputSection},

	{inputSection, "cached_tokens"}:           {count: countCached, rank: 1},
	{inputSection, "cached_tokens_details"}:   {opens: cachedSection},
	{inputSection, "cache_write_tokens"}:      {count: countWritten, rank: 1},
	{inputSection, "cache_creation_tokens"}:   {count: countWritten, rank: 1},
	{inputSection, "cache_write_1h_tokens"}:   {count: countWritten1h, rank: 1},
	{inputSection, "audio_tokens"}:            {count: countAudioIn},
	{inputSection, "image_tokens"}:            {count: countImageIn},
	{inputSection, "web_search_requests"}:     {count: countSearches},
	{outputSection, "reasoning_tokens"}:       {count: countReasoning, rank: 1},
	{outputSection, "audio_tokens"}:           {count: countAudioOut},
	{outputSection, "image_tokens"}:           {count: countImageOut},
	{cachedSection, "audio_tokens"}:           {count: countCachedAudio},
	{usageSection, "reasoning_tokens"}:        {count: countReasoning},
	{usageSection, "citation_tokens"}:         {count: countAdded},
	{usageSection, "cached_tokens"}:           {count: countCached},
	{usageSection, "prompt_cache_hit_tokens"}: {count: countCached},

	{usageSection, "cache_read_input_tokens"}:        {count: countCached},
	{usageSection, "cache_creation_input_tokens"}:    {count: countWritten},
	{usageSection, "cache_creation"}:                 {opens: writtenSection},
	{inputSection, "cache_creation_token_details"}:   {opens: writtenSection},
	{writtenSection, "ephemeral_5m_input_tokens"}:    {count: countWritten5m},
	{writtenSection, "ephemeral_1h_input_tokens"}:    {count: countWritten1h},
	{usageSection, "num_search_queries"}:             {count: countSearches},
	{usageSection, "server_tool_use"}:                {opens: searchSection},
	{usageSection, "server_tool_use_details"}:        {opens: searchSection},
	{usageSection, "server_side_tool_usage_details"}: {opens: searchSection},
	{searchSection, "web_search_requests"}:           {count: countSearches},
	{searchSection, "web_search_calls"}:              {count: countSearches},
	{usageSection, "plugins"}:                        {opens: pluginSection},
	{pluginSection, "search"}:                        {opens: toolSection},
	{usageSection, "x_tools"}:                        {opens: pluginSection},
	{pluginSection, "web_search"}:                    {opens: toolSection},
	{toolSection, "count"}:                           {count: countSearches},
	{toolSection, "num_requests"}:                    {count: countSearches},
	{usageSection, "search_units"}:                   {count: countUnits},
	{usageSection, "billed_units"}:                   {opens: usageSection},
	{usageSection, "inputTokens"}:                    {count: countInput},
	{usageSection, "outputTokens"}:                   {count: countOutput},
	{usageSection, "totalTokens"}:                    {count: countTotal},
	{usageSection, "cacheReadInputTokens"}:           {count: countCachedApart},
	{usageSection, "cacheWriteInputTokens"}:          {count: countWrittenApart},
	{timingSection, "prompt_n"}:                      {count: countInput},
	{timingSection, "cache_n"}:                       {count: countCachedApart},
	{timingSection, "predicted_n"}:                   {count: countOutput},
	{nativeSection, "promptTokenCount"}:              {count: countInput},
	{nativeSection, "cachedContentTokenCount"}:       {count: countCached},
	{nativeSection, "candidatesTokenCount"}:          {count: countOutput},
	{nativeSection, "thoughtsTokenCount"}:            {count: countReasoning},
	{nativeSection, "totalTokenCount"}:               {count: countTotal},
}

// usageRoots are the members of an answer, next to usage, that contain counts. They are read if
// usage is absent or has none.
var usageRoots = map[string]section{
	"x_groq":        noSection, // it has a usage
	"timings":       timingSection,
	"usageMetadata": nativeSection,
	"meta":          usageSection,
}
