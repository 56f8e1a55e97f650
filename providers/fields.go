package providers

import (
	"cmp"
	"slices"
	"strings"
)

// Effect is the effect on the bill of a request member that OpenAI's API does not have, as far as
// it is known for the provider's kind.
type Effect uint8

// The effects of a member. Unknown and Priced ones are refused unless the provider's AllowFields
// lists them.
const (
	Unknown  Effect = iota
	Harmless        // changes how an answer is sampled or presented
	Thinks          // the answer may have invisible output within the output limit
	Priced          // has a cost that the price of the request does not include
)

// sampling are members supported by OpenAI-compatible servers: vLLM, llama.cpp, Ollama, SGLang,
// TGI, Together, Fireworks, OpenRouter, Groq. They choose among tokens, format an answer, or add to
// what is shown of it.
const sampling = `
	add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_prompt cache_salt
	context_length_exceeded_behavior continue_final_message disable_tool_validation do_sample dry_allowed_length
	dry_base dry_multiplier dry_penalty_last_n dry_sequence_breakers dynatemp_exponent dynatemp_range early_stopping
	ebnf format grammar guided_choice guided_decoding_backend guided_grammar guided_json guided_regex
	guided_whitespace_pattern ignore_eos include_stop_str_in_output json_schema keep_alive length_penalty
	mask_sensitive_info min_p min_tokens mirostat mirostat_eta mirostat_lr mirostat_target mirostat_tau n_probs
	no_stop_trim perf_metrics_in_response prompt_cache_isolation_key prompt_logprobs prompt_truncate_len raw_output
	regex repeat_last_n repeat_penalty repetition_penalty return_token_ids return_tokens_as_token_ids session_id
	skip_special_tokens spaces_between_special_tokens stop_sequences stop_token_ids structured_outputs tfs_z
	timings_per_token top_a top_k top_n_sigma transforms truncate_prompt_tokens typical_p usage use_beam_search
	watermark xtc_probability xtc_threshold`

// thinking are members that turn reasoning on or off, or set its amount.
const thinking = `
	chat_template_kwargs disable_reasoning enable_thinking include_reasoning reasoning reasoning_budget
	reasoning_format reasoning_split separate_reasoning stream_reasoning think thinking thinking_budget`

// media are members of the endpoints other than chat: embeddings, pictures and speech.
const media = `
	embedding_type guidance_scale input_type language late_chunking negative_prompt normalize normalized output_dtype
	sample_rate seed task task_type truncate`

// members lists members by their effect.
type members map[string]Effect

// kinds are the members that providers of a kind support in addition to OpenAI's and that are free.
var kinds = map[Kind]members{
	OpenAI: of(sampling+media, thinking),
	Azure:  of("user_security_context", ""),
	Mistral: of("document_image_limit document_page_limit output_dimension output_dtype random_seed safe_prompt",
		"prompt_mode"),
	Gemini: {},
}

func of(harmless, thinks string) members {
	m := members{}
	for name := range strings.FieldsSeq(harmless) {
		m[name] = Harmless
	}
	for name := range strings.FieldsSeq(thinks) {
		m[name] = Thinks
	}
	return m
}

// priced lists the members that some provider charges for, by their effect. They count for every
// kind, because a provider refuses or ignores members that it does not know.
var priced = []struct{ does, members string }{
	{
		"can switch the call to another model",
		"compound_custom context_window_fallbacks fallbacks model_list models preset route router safety_model",
	},
	{"chooses among servers with different prices", "provider providers speed"},
	{
		"makes the provider search or run tools",
		`enable_code_interpreter enable_search include_domains mcp_servers plugins search_context_size
		search_domain_filter search_mode search_options search_parameters search_recency_filter search_settings web_search`,
	},
	{
		"adds input that is not counted",
		`cached_content chat_template data_sources documents enhancements media_io_kwargs mm_processor_kwargs prompt_embeds
		vl_high_resolution_images`,
	},
	{
		"sets an output limit under another name",
		"max_completion_tokens max_length max_new_tokens max_output_tokens max_tokens max_tokens_to_sample n_predict " +
			"num_predict",
	},
	{
		"requests more answers or steps than are counted",
		"candidate_count complexity frames height num_images num_return_sequences steps svg width",
	},
	{"makes the answer available only later, where its cost is not seen", "deferred"},
	{"can contain any other field", "extra_body extra_query google litellm_params options"},
}

// Effect returns the effect on the bill of a member beyond OpenAI's API at this provider, and for
// Priced ones a description.
func (p *Provider) Effect(name string) (e Effect, does string) {
	kind := p.Kind
	kind = cmp.Or(kind, OpenAI)
	if e := kinds[kind][name]; e != Unknown {
		return e, ""
	}
	for _, group := range priced {
		if slices.Contains(strings.Fields(group.members), name) {
			return Priced, group.does
		}
	}
	return Unknown, ""
}

// Allows reports whether the provider's configuration allows a member.
func (p *Provider) Allows(name string) bool {
	return len(p.AllowFields) > 0 && MatchAny(p.AllowFields, name)
}

// KnowsBothLimits reports whether the provider is known to accept both names of the output limit in
// chat: max_tokens and max_completion_tokens.
func (p *Provider) KnowsBothLimits() bool {
	if p.Kind == Azure {
		return true
	}
	host := p.BaseURL.Hostname()
	return host == openAIHost || strings.HasSuffix(host, "."+openAIHost)
}

const openAIHost = "api.openai.com"
