package providers

import (
	"slices"

	"github.com/llmguard/llmguard/providers/anthropic"
	"github.com/llmguard/llmguard/providers/azure"
	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/providers/gemini"
	"github.com/llmguard/llmguard/providers/mistral"
	"github.com/llmguard/llmguard/providers/openai"
)

// dialects are all dialects. The first is the default.
var dialects = []dialect.Dialect{
	openai.Dialect{}, azure.Dialect{}, mistral.Dialect{}, gemini.Dialect{}, anthropic.Dialect{},
}

// DialectOf returns the dialect of a kind of providers, or nil if there is none.
func DialectOf(kind string) dialect.Dialect {
	for _, d := range dialects {
		if d.Name() == kind {
			return d
		}
	}
	return nil
}

// Kinds returns the names of the dialects that have a property; nil: of all.
func Kinds(has func(dialect.Dialect) bool) []string {
	var names []string
	for _, d := range dialects {
		if has == nil || has(d) {
			names = append(names, d.Name())
		}
	}
	return names
}

// KindsWith returns the names of the dialects that have a setting.
func KindsWith(setting string) []string {
	return Kinds(func(d dialect.Dialect) bool { return slices.Contains(d.Settings(), setting) })
}

// account is what the dialect needs of p.
func (p *Provider) account() dialect.Account {
	return dialect.Account{BaseURL: p.BaseURL, Key: p.APIKey, APIVersion: p.APIVersion, Deployments: p.Deployments}
}
