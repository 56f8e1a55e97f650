package guard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/llmguard/llmguard/internal/wire"
)

// identifiers are the members by which a provider distinguishes end users, sessions and
// cached prompts of an account. The last three are those of vLLM, Fireworks and OpenRouter.
var identifiers = []string{
	"user", "safety_identifier", "prompt_cache_key", "cache_salt", "prompt_cache_isolation_key", "session_id",
}

const (
	identifierMost = 64  // bytes that OpenAI accepts
	messagesMost   = 256 // bytes that Anthropic accepts
	prefixBytes    = 8   // of the HMAC of an org's id
	digestBytes    = 16  // of the HMAC that replaces a long identifier
)

// identify prefixes each identifier with the org, because all orgs share the account:
// otherwise one org could read what another has cached, or act as its users. The error is a
// *wire.Error.
func (ed *editor) identify() error {
	key := ed.plan.Target.Provider.IdentifierKey
	switch {
	case key == nil:
		return nil
	case ed.plan.sent.Endpoint.Traits().Messages:
		return ed.identifyMessages(key)
	}
	for _, name := range identifiers {
		value, has, err := ed.identifier(name)
		if err != nil {
			return err
		}
		if !has {
			continue
		}
		text, err := json.Marshal(prefixed(key, ed.plan.Caller.Org.ID, value, identifierMost))
		if err != nil {
			return err
		}
		ed.plan.edits = append(ed.plan.edits, wire.Edit{Name: name, JSON: text})
	}
	return nil
}

// identifyMessages is identify for Messages, whose only identifier is metadata.user_id.
func (ed *editor) identifyMessages(key []byte) error {
	value, err := fieldOf(ed.plan.sent, "metadata.user_id")
	if err != nil || value == "" {
		return err
	}
	var metadata map[string]any
	err = json.Unmarshal(ed.plan.sent.Member("metadata"), &metadata)
	metadata["user_id"] = prefixed(key, ed.plan.Caller.Org.ID, value, messagesMost)
	text, errText := json.Marshal(metadata)
	ed.plan.edits = append(ed.plan.edits, wire.Edit{Name: "metadata", JSON: text})
	return errors.Join(err, errText)
}

// identifier returns an identifier of the request, and whether the request has it.
func (ed *editor) identifier(name string) (value string, has bool, err error) {
	if ed.plan.sent.Form != nil {
		value, has = ed.plan.sent.Form.Value(name)
		return value, has, nil
	}
	raw := ed.plan.sent.Member(name)
	if raw == nil {
		return "", false, nil
	}
	value, err = unquoted(name, raw)
	return value, err == nil, err
}

// unquoted returns the string that a member holds.
func unquoted(name string, raw []byte) (value string, err error) {
	if json.Unmarshal(raw, &value) != nil {
		return "", wire.BadRequest(name, "invalid_type", "Invalid type for '%s': expected a string.", name)
	}
	return value, nil
}

// prefixed returns an org's identifier as sent to the provider, in at most so many bytes. It is deterministic.
func prefixed(key []byte, org, value string, most int) string {
	out := digest(key, org, prefixBytes) + "-" + value
	if len(out) <= most {
		return out
	}
	return digest(key, org, prefixBytes) + "-" + digest(key, org+"\x00"+value, digestBytes)
}

func digest(key []byte, text string, size int) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)[:size])
}
