package config

import "time"

// Conversations are the responses that llmguard stores because the provider has only chat
// completions, unless the request sets store: false.
type Conversations struct {
	// TTL is how long a response can be retrieved and used as previous_response_id.
	TTL time.Duration `yaml:"ttl" default:"7d"`
	// MaxSize is the largest response that is stored, with its own input. A conversation may have 32 times as much.
	MaxSize Size `yaml:"max_size" default:"1MB"`
}

// Files is where files are stored, and how many.
type Files struct {
	// Store is a directory or a bucket, s3://bucket?region=...: see docs/batch.md. All proxies and workers need the
	// same store; a directory must be a shared mount.
	Store string `yaml:"store"`
	// MaxFile is the largest upload.
	MaxFile Size `yaml:"max_file" default:"200MB"`
	// TTL is how long files are kept unless the upload sets its own lifetime.
	TTL time.Duration `yaml:"ttl" default:"30d"`
	// MaxOrgBytes is the space of an org's files. Beyond it, uploads and new batches are refused. 0: no limit.
	MaxOrgBytes Size `yaml:"max_org_bytes" default:"100GB" min:"0"`
	// MaxUserBytes is the same for one user. 0: as much as the org.
	MaxUserBytes Size `yaml:"max_user_bytes" default:"0" min:"0"`
	// MaxOrgFiles and MaxUserFiles are the most files of an org and of one user.
	MaxOrgFiles  int `yaml:"max_org_files" default:"50000" min:"0"`
	MaxUserFiles int `yaml:"max_user_files" default:"25000" min:"0"`
}

// AnswerStore is where response caches store answers.
type AnswerStore struct {
	// Store is Redis, or files.store. Answers stored before a change are found as long as files.store is set.
	Store string `yaml:"store" default:"redis" enum:"redis,files"`
}

// checkAnswerStore checks that there are files for the answers.
func checkAnswerStore(m *mistakes, cfg *Config) {
	if cfg.Cache.Store == "files" && cfg.Files.Store == "" {
		m.failAt("cache.store", "files needs files.store: set it to a directory or a bucket, or use redis")
	}
}

// Batches are limits of the Batch API.
type Batches struct {
	// MaxLines is how many requests a batch may have.
	MaxLines int `yaml:"max_lines" default:"50000"`
	// InQueue is how many lines of a batch are in Redis at a time.
	InQueue int `yaml:"in_queue" default:"1000"`
	// MaxOpen and MaxUserOpen are the most open batches of an org and of one user. 0: no limit.
	MaxOpen     int `yaml:"max_open" default:"500" min:"0"`
	MaxUserOpen int `yaml:"max_user_open" default:"250" min:"0"`
	// MaxEnded is how many ended batches of an org are kept, for 31 days. 0: all.
	MaxEnded int `yaml:"max_ended" default:"10000" min:"0"`
	// OverBudget is what happens to a batch whose maximum cost exceeds what a limit admits in 24 hours. warn: it
	// runs, and lines that do not fit in time end as batch_expired. refuse: it fails.
	OverBudget string `yaml:"over_budget" default:"warn" enum:"warn,refuse"`
	// Poll is how often llmguard checks a batch that the provider runs.
	Poll time.Duration `yaml:"poll" default:"30s"`
	// Doubt is how long llmguard looks for such a batch in the provider's list if the answer to its creation was
	// lost. Then it creates another; if the first appears later, both are paid for.
	Doubt time.Duration `yaml:"doubt" default:"2m"`
}

// Memory is the space for bodies and answers in flight in each process. Without space, calls get 503. See
// docs/scaling.md.
type Memory struct {
	// Bodies is their memory, at least requests.max_body. 0: a quarter of the process's memory, at least twice
	// requests.max_body.
	Bodies Size `yaml:"bodies" default:"0" min:"0"`
	// Spool is the part in temporary files, which hold bodies above 1 MiB: at least requests.max_body. 0: all bodies
	// in memory.
	Spool Size `yaml:"spool" default:"2GB" min:"0"`
}

// checkRoom checks that the memory limits fit the largest body.
func checkRoom(m *mistakes, cfg *Config) {
	for path, size := range map[string]Size{"memory.bodies": cfg.Memory.Bodies, "memory.spool": cfg.Memory.Spool} {
		if m.given(path) && size > 0 && size < cfg.Requests.MaxBody {
			m.failAt(path, "%d bytes is less than requests.max_body, which is %d bytes", size,
				cfg.Requests.MaxBody)
		}
	}
}
