package tokenizer

import "strings"

// EncodingFor returns the encoding of a model, by prefix as in openai/tiktoken's model.py, extended
// to Azure deployment names, fine-tunes and provider prefixes ("openai/gpt-4o"). Unknown models,
// including those of other providers, get O200k: see Multiplier for how far their real counts
// differ from it.
func EncodingFor(model string) Encoding {
	name := baseName(model)
	switch {
	case hasAnyPrefix(name, "gpt-4o", "gpt-4.1", "gpt-4.5", "chatgpt-4o"):
		return O200k
	case name == "gpt-4", hasAnyPrefix(name, "gpt-4-", "gpt-4_", "gpt-4v", "gpt-3.5", "gpt-35", "text-embedding-"),
		is(name, "davinci-002"), is(name, "babbage-002"):
		return CL100k
	case hasAnyPrefix(name, "text-davinci-002", "text-davinci-003", "text-davinci-edit", "code-davinci", "code-cushman",
		"davinci-codex", "cushman-codex"):
		return P50k
	case hasAnyPrefix(name, "text-davinci", "text-curie", "text-babbage", "text-ada", "text-similarity-", "text-search-",
		"code-search-"),
		is(name, "davinci"), is(name, "curie"), is(name, "babbage"), is(name, "ada"), is(name, "gpt2"), is(name, "gpt-2"):
		return R50k
	default:
		return O200k
	}
}

// baseName lower-cases a model name and drops the provider path
// ("azure/openai/gpt-4o") and the "ft:" of a fine-tune.
func baseName(model string) string {
	name := strings.ToLower(model)
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	return strings.TrimPrefix(name, "ft:")
}

// is reports whether name is the model or a fine-tune of it ("ada:ft-org").
func is(name, model string) bool {
	rest, ok := strings.CutPrefix(name, model)
	return ok && (rest == "" || rest[0] == ':')
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
