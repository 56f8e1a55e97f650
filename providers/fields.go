package providers

import (
	"slices"
	"strings"

	"github.com/llmguard/llmguard/providers/dialect"
)

// priced lists the members that some provider charges for, by their effect. They count at every
// provider, because a provider refuses or ignores members that it does not know.
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
func (p *Provider) Effect(name string) (e dialect.Effect, does string) {
	if e := p.Dialect.Effect(name); e != dialect.Unknown {
		return e, ""
	}
	for _, group := range priced {
		if slices.Contains(strings.Fields(group.members), name) {
			return dialect.Priced, group.does
		}
	}
	return dialect.Unknown, ""
}

// Allows reports whether the provider's configuration allows a member.
func (p *Provider) Allows(name string) bool {
	return len(p.AllowFields) > 0 && MatchAny(p.AllowFields, name)
}

// KnowsBothLimits reports whether the provider is known to accept both names of the output limit in
// chat: max_tokens and max_completion_tokens.
func (p *Provider) KnowsBothLimits() bool { return len(p.Dialect.LimitFields(p.BaseURL)) > 1 }
