package guard

import (
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// Credential is an org's own secret at a provider. It is never printed. An empty one exists
// but cannot be decrypted: the org's calls then fail, because the deployment's credential
// must not pay for them.
type Credential string

// String returns a placeholder, for fmt and logs.
func (c Credential) String() string { return "[secret]" }

// GoString returns a placeholder, so that %#v does not print the secret either.
func (c Credential) GoString() string { return c.String() }

// MarshalText returns a placeholder, for encoders.
func (c Credential) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// at returns a provider as the org calls it: with its own credential, if it has one. The
// error is a *wire.Error.
func (o *Org) at(p *providers.Provider) (*providers.Provider, error) {
	own, has := o.Credentials[p.ID]
	switch {
	case !has:
		return p, nil
	case own == "":
		return nil, wire.ServiceUnavailable("Your organization's own credential for the provider cannot be decrypted. Ask "+
			"the operator to check the proxy's log", time.Minute, nil)
	default:
		return p.As(string(own)), nil
	}
}

// owning returns a target as the org calls it. An org with its own credential also has its
// own pool. The error is a *wire.Error.
func (o *Org) owning(t providers.Target) (providers.Target, error) {
	p, err := o.at(t.Provider)
	if err != nil {
		return t, err
	}
	if p != t.Provider {
		t.Pool = providers.OwnPool(t.Pool, o.ID)
	}
	t.Provider = p
	return t, nil
}

// OwnPools lists the pools of orgs that have a credential of their own.
func (p *Policy) OwnPools() []string {
	var ids []string
	for _, o := range p.Orgs {
		for id := range o.Credentials {
			provider := p.Providers.Get(id)
			if provider == nil {
				continue
			}
			for _, pool := range provider.Pools {
				ids = append(ids, providers.OwnPool(pool.ID, o.ID))
			}
		}
	}
	return ids
}

// Upstream returns a provider, by its id, as an org calls it; nil if it is no longer
// configured. The error is a *wire.Error.
func (pt *Passthrough) Upstream(o *Org, provider string) (*providers.Provider, error) {
	p := pt.policy.Load().Providers.Get(provider)
	if p == nil {
		return nil, nil
	}
	return o.at(p)
}
