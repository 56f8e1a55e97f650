package config

import "time"

// Provider is one upstream account.
type Provider struct {
	// ID names the provider in metrics, errors and orgs' lists.
	ID string `yaml:"id,required" kind:"id"`
	// Kind is the wire the provider speaks. openai serves every
	// OpenAI-compatible upstream: OpenAI, vLLM, Ollama, OpenRouter, Groq...
	// azure takes the key as api-key and has its own paths; mistral refuses some
	// fields of OpenAI's, which are taken out; gemini counts its thoughts in the
	// total of its usage alone.
	Kind string `yaml:"kind" default:"openai" enum:"openai,azure,mistral,gemini"`
	// Responses says how calls of /v1/responses are sent. native: as they are.
	// translate: as chat completions, for servers that know nothing else; see
	// conversations for what is kept then. auto: translate for the kinds mistral and gemini and
	// for the addresses of DeepSeek and Together, native for all others. Ollama,
	// vLLM and other servers of your own differ by version: try, and say.
	Responses string `yaml:"responses" default:"auto" enum:"auto,native,translate"`
	// APIVersion is the api-version of Azure calls. Left out: Azure's v1 API, which
	// needs none. Only for kind azure.
	APIVersion string `yaml:"api_version"`
	// Deployments names the deployment of a model at Azure, where that is not called
	// like the model. Only for kind azure with api_version.
	Deployments map[string]string `yaml:"deployments"`
	// BaseURL is the root of the provider's API, with its version segment:
	// https://api.openai.com/v1. Of Azure it is the resource alone:
	// https://NAME.openai.azure.com. Callers can never choose it.
	BaseURL string `yaml:"base_url,required"`
	// APIKey is sent as a bearer token; leave it out for servers without one.
	APIKey Secret `yaml:"api_key"`
	// Organization and Project are sent as openai-organization and
	// openai-project.
	Organization string `yaml:"organization"`
	Project      string `yaml:"project"`
	// Headers are sent with every call, besides llmguard's own.
	Headers map[string]Secret `yaml:"headers"`
	// AllowFields are members of a request that OpenAI's API does not have and that
	// calls may send on to this provider all the same: names, or patterns with *. Those
	// that cost nothing (top_k, repetition_penalty...) need no listing. What others cost
	// is not held: an answer by a dearer model, or one that reports a greater cost, is
	// charged for it afterwards.
	AllowFields []string `yaml:"allow_fields"`
	// OutputLimitField is the name the provider knows for the output limit of a chat
	// completion; the limit is sent under it whatever the caller called it. auto: as
	// the caller wrote it for kind azure and api.openai.com; max_tokens for all others,
	// except OpenAI's reasoning models, which refuse it.
	OutputLimitField string `yaml:"output_limit_field" default:"auto" enum:"auto,max_tokens,max_completion_tokens"`
	// ReportedCost says what becomes of a cost that an answer reports in its usage (cost,
	// estimated_cost) or in the header x-litellm-response-cost, in USD. charge: it is
	// charged when it is greater than what the call was priced at. ignore: it is passed on
	// only; for providers that count it in another currency.
	ReportedCost string `yaml:"reported_cost" default:"charge" enum:"charge,ignore"`
	// Identifiers says how user, safety_identifier and prompt_cache_key of requests are
	// sent. org: behind a prefix of the caller's org (an HMAC of its id), so that no org
	// shares the cached prompts of another, or answers for its users. as_sent:
	// unchanged. With an org's own credential they are always unchanged.
	Identifiers string `yaml:"identifiers" default:"org" enum:"org,as_sent"`
	// ServiceTier is the tier the account serves calls at that name none, or
	// "auto": what its project is set to. Such calls are held and, where the
	// answer names no tier, charged at it.
	ServiceTier string `yaml:"service_tier" default:"default" enum:"default,flex,priority"`
	// BatchMode is who sends the lines of batches. queue: llmguard, one by one, at
	// the pools' quota. provider: the provider's own Batch API, at its batch
	// prices and within its 24 hours; llmguard hands it the file, holds the money
	// for every line and settles each by its result. Only for kind openai.
	BatchMode string `yaml:"batch_mode" default:"queue" enum:"queue,provider"`
	// DocumentTokens is how many input tokens each document in a request is held at: a
	// PDF, or what the provider fetches from an address. 0 is what its model can take in
	// at most, because a small file may unpack to any length. Set it to what the provider
	// reads of a document when the hold is too large for your limits.
	DocumentTokens int64 `yaml:"document_tokens" min:"0"`
	// Prompts are stored prompts of the account that calls of /v1/responses may name. All
	// others are 404: a prompt names a model and adds input that the request does not show.
	Prompts []Prompt `yaml:"prompts"`
	// ConnectTimeout covers dialling and the TLS handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"10s"`
	// HeaderTimeout is how long the provider may take to begin its answer. A
	// plain answer begins when it is complete, so reasoning takes minutes.
	HeaderTimeout time.Duration `yaml:"response_header_timeout" default:"15m"`
	// IdleTimeout is how long an answer that has begun may pause.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"5m"`
	// Models are listed on /v1/models besides those of the price catalogue.
	Models []string `yaml:"models"`
	// ModelMap gives callers' names for models: alias to the provider's name.
	ModelMap map[string]string `yaml:"model_map"`
	// SpendCaps bound what all orgs together spend at this provider.
	SpendCaps []SpendCap `yaml:"spend_caps"`
	// Pools are the provider's quota groups. A model belongs to the first pool
	// with a pattern that matches. Left out: one pool named like the provider,
	// for all models, without quota.
	Pools []Pool `yaml:"pools"`
}

// Prompt is a stored prompt of a provider's account.
type Prompt struct {
	// ID is the prompt's, as the provider shows it: pmpt_...
	ID string `yaml:"id,required"`
	// Model runs it, and is written into requests that name none, whatever the prompt
	// itself says.
	Model string `yaml:"model,required"`
	// InputTokens is what its messages and tools are held as, in its longest version. The
	// variables of a request are counted besides. Calls of tools that the provider runs
	// are charged, but not held.
	InputTokens int64 `yaml:"input_tokens,required" min:"0"`
	// Orgs are those that may use it. Left out: all.
	Orgs []string `yaml:"orgs"`
}

// Pool is a set of models that share one quota of the provider. Quotas are
// kept over all processes, live and queued calls together.
type Pool struct {
	// ID is unique over all providers; the queue of the pool is kept under it.
	ID string `yaml:"id,required" kind:"id"`
	// Models are patterns of model names as the provider knows them. Left out: all.
	Models []string `yaml:"models"`
	// RPM is requests per minute, in every sliding minute. Left out: no bound.
	RPM int64 `yaml:"rpm"`
	// TPM is tokens per minute, in every sliding minute. Left out: no bound.
	TPM int64 `yaml:"tpm"`
	// TPMCounting is how the provider counts tokens. requested: input and
	// output limit at the start, nothing given back, as OpenAI does. actual: the
	// tokens used, when the call ends.
	TPMCounting string `yaml:"tpm_counting" default:"requested" enum:"requested,actual"`
	// LearnQuota lets the limits that the provider names in its answers bound the
	// pool too: the smaller one counts. Models with limits of their own then
	// belong in pools of their own.
	LearnQuota bool `yaml:"learn_quota" default:"true"`
	// Concurrency is how many calls may be open at once. Left out: no bound.
	Concurrency int `yaml:"concurrency"`
	// MaxJobs and MaxBytes bound the jobs waiting for this pool; beyond them
	// calls that do not fit get 429.
	MaxJobs  int  `yaml:"max_jobs" default:"100000"`
	MaxBytes Size `yaml:"max_bytes" default:"1GB"`
	// MaxAge is how long a job may wait before it expires.
	MaxAge time.Duration `yaml:"max_age" default:"1d"`
	// WorkerConcurrency is how many of the pool's jobs one worker process runs
	// at once.
	WorkerConcurrency int `yaml:"worker_concurrency" default:"64"`
}
