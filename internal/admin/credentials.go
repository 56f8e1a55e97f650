package admin

import (
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Credential shows that an org has its own credential at a provider, without the secret.
type Credential struct {
	Provider string    `json:"provider" col:"provider"`
	Last4    string    `json:"last4" col:"ends in"`
	Sealed   bool      `json:"sealed" col:"encrypted"` // encrypted in Redis
	Created  time.Time `json:"created_at"`
	Updated  time.Time `json:"updated_at" col:"set;minute"`
}

type newCredential struct {
	Secret string `json:"secret"`
	// Clear allows storing it unencrypted when there is no seal key.
	Clear bool `json:"clear,omitempty" help:"store it unencrypted in Redis if there is no seal key"`
}

func viewCredential(provider string, c *tenants.Credential) Credential {
	return Credential{Provider: provider, Last4: c.Last4, Sealed: !c.Clear, Created: c.Created, Updated: c.Updated}
}

type credentialHandler struct{ base }

func (h *credentialHandler) listCredentials(c *call) (any, error) {
	own := h.dir.records(c.r.PathValue("org")).Credentials
	return views(byName(own), func(id string) Credential { return viewCredential(id, own[id]) }), nil
}

const maxSecret = 4096

func (h *credentialHandler) setCredential(c *call) (any, error) {
	org, provider := c.r.PathValue("org"), c.r.PathValue("provider")
	if !slices.Contains(h.opts.File().Providers, provider) {
		return nil, wire.NotFound("provider", "provider_not_found", "There is no provider %.80q%s", provider,
			settings.Hint(provider, h.opts.File().Providers))
	}
	n := body[newCredential](c)
	if len(n.Secret) < 8 || len(n.Secret) > maxSecret || strings.ContainsFunc(n.Secret, func(r rune) bool {
		return r <= ' ' || r > '~'
	}) {
		return nil, invalid("secret", "secret must be 8 to %d printable ASCII characters without spaces", maxSecret)
	}
	ring := h.opts.Seal()
	if ring == nil && !n.Clear {
		return nil, conflict("no_seal_key", "No key is configured to encrypt the credential. Set queue.seal_keys, or "+
			"use clear (--clear) to store it in Redis unencrypted")
	}
	ref := tenants.Ref{Kind: tenants.KindCredential, Org: org, ID: provider}
	record, err := change(c, h.audit, c.entry(org, provider), ref, func(r *tenants.Credential) error {
		r.Sealed, r.Clear = ring.Seal([]byte(n.Secret), tenants.SealPlace(org, provider)...), ring == nil
		r.Last4 = n.Secret[len(n.Secret)-4:]
		return nil
	})
	return viewCredential(provider, &record), err
}

func (h *credentialHandler) deleteCredential(c *call) (any, error) {
	org, provider := c.r.PathValue("org"), c.r.PathValue("provider")
	if h.dir.records(org).Credentials[provider] == nil {
		return nil, wire.NotFound("provider", "credential_not_found", "Org %s has not set a credential for %.80q", org,
			provider)
	}
	return h.audit.remove(c, c.entry(org, provider), tenants.Ref{Kind: tenants.KindCredential, Org: org, ID: provider})
}
