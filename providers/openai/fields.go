package openai

import "github.com/llmguard/llmguard/providers/dialect"

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

var free = dialect.Free(sampling+media, thinking)

// Effect knows the members that cost nothing.
func (Dialect) Effect(name string) dialect.Effect { return free[name] }
