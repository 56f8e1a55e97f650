package guard

import (
	"slices"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// prompted finds the stored prompt among what a request refers to, and returns the rest.
// The operator lists the prompts and what they add: their account shows neither.
func (rs *resolver) prompted(c Caller, refs []wire.Ref) (k references, rest []wire.Ref, err error) {
	at := slices.IndexFunc(refs, func(ref wire.Ref) bool { return ref.Kind == wire.RefPrompt })
	if at < 0 {
		return k, refs, nil
	}
	for _, p := range rs.policy.Load().Providers.All() {
		prompt, ok := p.Prompts[refs[at].ID]
		if !ok || len(c.Org.Providers) > 0 && !slices.Contains(c.Org.Providers, p.ID) || !mayPrompt(c.Org, p.ID, prompt) {
			continue
		}
		k.provider = p.ID
		k.model = prompt.Model
		k.tokens = prompt.InputTokens
		return k, slices.Delete(slices.Clone(refs), at, at+1), nil
	}
	return k, nil, notOwned(refs[at])
}

// mayPrompt reports whether an org may use a prompt. With its own credential it calls
// another account, which has other prompts.
func mayPrompt(o *Org, provider string, p providers.Prompt) bool {
	_, own := o.Credentials[provider]
	return !own && (len(p.Orgs) == 0 || slices.Contains(p.Orgs, o.ID))
}
