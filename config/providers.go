package config

import (
	"time"

	"github.com/llmguard/llmguard/providers"
)

// Provider is one upstream account.
type Provider struct {
	// ID names the provider in metrics, errors and orgs' lists.
	ID string `yaml:"id,required" kind:"id" unique:"list"`
	// Kind is the dialect. openai is for all OpenAI-compatible servers: OpenAI, vLLM, Ollama, OpenRouter, Groq and
	// others.
	Kind string `yaml:"kind" default:"openai" kind:"dialect"`
	// Responses is how calls of /v1/responses are sent. native: unchanged. translate: as chat completions. auto:
	// translate for the kinds mistral and gemini and for DeepSeek and Together, native for others. Kind anthropic
	// always gets Messages.
	Responses string `yaml:"responses" default:"auto" enum:"auto,native,translate"`
	// APIVersion is the api-version of Azure calls. If omitted, Azure's v1 API is used.
	APIVersion string `yaml:"api_version" needs:"dialect"`
	// Deployments maps models to Azure deployments of other names, with api_version.
	Deployments map[string]string `yaml:"deployments" needs:"dialect"`
	// BaseURL is the root of the provider's API with its version: https://api.openai.com/v1.
	// For Azure it is the resource only: https://NAME.openai.azure.com.
	BaseURL string `yaml:"base_url,required" kind:"base URL"`
	// APIKey is sent as its kind needs it. Leave it out for servers without keys.
	APIKey Secret `yaml:"api_key" kind:"credential"`
	// Organization and Project are sent as openai-organization and openai-project.
	Organization string `yaml:"organization"`
	Project      string `yaml:"project"`
	// Headers are added to every call.
	Headers map[string]Secret `yaml:"headers"`
	// AllowFields are request fields, or patterns with *, outside OpenAI's API that llmguard forwards. Their cost is
	// not held, but charged if the answer names a more expensive model or a higher cost.
	AllowFields []string `yaml:"allow_fields" kind:"pattern"`
	// OutputLimitField is the provider's name for the output limit of chat completions. auto: as in the request for
	// kind azure and api.openai.com; max_tokens for others, except OpenAI's reasoning models.
	OutputLimitField string `yaml:"output_limit_field" default:"auto" enum:"auto,max_tokens,max_completion_tokens"`
	// ReportedCost is what happens to a reported cost above llmguard's price. charge: it is charged in USD. ignore:
	// it is passed on only. auto: charge for OpenRouter, Perplexity, DeepInfra and Requesty, and for costs whose name
	// says USD.
	ReportedCost string `yaml:"reported_cost" default:"auto" enum:"auto,charge,ignore"`
	// Region is where the provider processes calls, if that has a separate price. Default: the region in the host,
	// such as eu for eu.api.openai.com; one in the request or answer takes precedence.
	Region string `yaml:"region"`
	// FailedCalls is what a call costs that the provider answered with an error. free: nothing. input: its input,
	// estimated, after a 408, a 5xx other than 503 and 529, or content_filter, as Azure bills it.
	FailedCalls string `yaml:"failed_calls" default:"free" enum:"free,input"`
	// Identifiers is how user, safety_identifier and prompt_cache_key are sent. org: with a prefix for the caller's
	// org, so that orgs share no cached prompts. as_sent: unchanged, as always with an org's own credential.
	Identifiers string `yaml:"identifiers" default:"org" enum:"org,as_sent"`
	// ServiceTier is the tier of calls that name none or "auto": the setting of the account's project. They are held
	// at this tier, and charged at it if the answer names none.
	ServiceTier string `yaml:"service_tier" default:"default" enum:"default,flex,priority"`
	// BatchMode is who runs the lines of batches. queue: llmguard, one by one. provider: the provider's own Batch
	// API, at its batch prices, within 24 hours; only for kinds openai and anthropic (lines for /v1/messages).
	BatchMode string `yaml:"batch_mode" default:"queue" enum:"queue,provider"`
	// DocumentTokens is how many input tokens are held for each document in a request: a PDF, or content of a URL. 0:
	// the model's maximum.
	DocumentTokens int64 `yaml:"document_tokens" min:"0"`
	// Strict refuses members of requests on /v1/messages, and names in anthropic-beta, that llmguard does not know.
	// Otherwise they are forwarded, and their cost is not held.
	Strict bool `yaml:"strict" needs:"dialect"`
	// Prompts are the account's stored prompts that calls of /v1/responses may use. Others get 404.
	Prompts []Prompt `yaml:"prompts"`
	// ConnectTimeout includes the TLS handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"10s"`
	// HeaderTimeout is how long the provider may take to start its answer. A plain answer starts when it is complete.
	HeaderTimeout time.Duration `yaml:"response_header_timeout" default:"15m"`
	// IdleTimeout is how long an answer may pause.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"5m"`
	// Models are listed on /v1/models in addition to the price catalogue's.
	Models []string `yaml:"models"`
	// ModelMap maps callers' names to the provider's model names.
	ModelMap map[string]string `yaml:"model_map"`
	// SpendCaps bound what all orgs spend at this provider.
	SpendCaps []SpendCap `yaml:"spend_caps" range:"..50 spend caps"`
	// Pools are the provider's quota groups. A model belongs to the first pool with a matching pattern. Default: one
	// pool with the provider's name, without quota.
	Pools []Pool `yaml:"pools"`
}

// Prompt is a stored prompt of a provider's account.
type Prompt struct {
	// ID is the provider's id of the prompt, pmpt_...
	ID string `yaml:"id,required" unique:"list"`
	// Model runs the prompt, whatever model is stored in it.
	Model string `yaml:"model,required"`
	// InputTokens is how many tokens are held for the prompt's messages and tools, in its longest version, without
	// the request's variables. Tools that the provider runs are charged but not held.
	InputTokens int64 `yaml:"input_tokens,required" min:"0"`
	// Orgs may use the prompt. Default: all.
	Orgs []string `yaml:"orgs"`
}

// Pool is a set of models that share one quota at the provider, over all processes, live and queued calls.
type Pool struct {
	// ID is unique over all providers. The pool's queue is stored under it.
	ID string `yaml:"id,required" kind:"id"`
	// Models are patterns of the provider's model names. Default: all.
	Models []string `yaml:"models" range:"1.." kind:"pattern"`
	// RPM and TPM are requests and tokens in every sliding minute. Default: no limit.
	RPM int64 `yaml:"rpm"`
	TPM int64 `yaml:"tpm"`
	// ITPM and OTPM are input and output tokens, for a provider that counts these separately, as Anthropic does:
	// without cached input, and only what is generated. Default: no limit.
	ITPM int64 `yaml:"itpm" excludes:"tpm"`
	OTPM int64 `yaml:"otpm" excludes:"tpm"`
	// TPMCounting is how the provider counts tokens. requested: input and output limit at the start, as OpenAI does.
	// actual: the tokens used, at the end.
	TPMCounting string `yaml:"tpm_counting" default:"requested" enum:"requested,actual" excludes:"itpm,otpm"`
	// LearnQuota also applies smaller limits from the provider's headers. Give models with different limits separate
	// pools.
	LearnQuota bool `yaml:"learn_quota" default:"true"`
	// Concurrency is how many calls may be in flight. Default: no limit.
	Concurrency int `yaml:"concurrency"`
	// MaxPause is the longest pause at the provider's request. After a longer one, one call is tried before the
	// others.
	MaxPause time.Duration `yaml:"max_pause" default:"5m" range:"1s..1h"`
	// MaxJobs and MaxBytes limit the jobs waiting for this pool. More calls get 429.
	MaxJobs  int  `yaml:"max_jobs" default:"100000"`
	MaxBytes Size `yaml:"max_bytes" default:"1GB"`
	// MaxAge is how long a job may wait before it expires.
	MaxAge time.Duration `yaml:"max_age" default:"1d"`
	// WorkerConcurrency is how many of the pool's jobs one worker runs in parallel.
	WorkerConcurrency int `yaml:"worker_concurrency" default:"64"`
}

// Splits reports whether a pool of the provider counts input and output separately. If the provider does, its
// quotas are learned that way unless there is a tpm.
func (p *Provider) Splits(pool *Pool) bool {
	return pool.ITPM > 0 || pool.OTPM > 0 || pool.TPM == 0 && providers.DialectOf(p.Kind).SplitsQuota()
}
