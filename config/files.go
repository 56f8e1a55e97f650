package config

import "time"

// Conversations bounds the responses that llmguard keeps itself, because the
// provider speaks chat completions only: input and output, in Redis, encrypted
// under queue.seal_keys, unless the request says store: false.
type Conversations struct {
	// TTL is how long a response can be retrieved and named as
	// previous_response_id.
	TTL time.Duration `yaml:"ttl" default:"7d"`
	// MaxSize is the largest response, with its own input, that is kept. A
	// conversation may have 32 times as much.
	MaxSize Size `yaml:"max_size" default:"1MB"`
}

// Files says where files are and how many there may be. Nothing of them is in
// Redis but a record each.
type Files struct {
	// Store is a directory, or s3://bucket?region=...; with an endpoint of one's
	// own: s3://bucket?region=us-east-1&endpoint=https://minio:9000&s3ForcePathStyle=true,
	// credentials as in AWS's own tools. All proxies and workers need the same
	// one: a directory must be a shared mount. They compare it at start, and
	// refuse to run with another.
	Store string `yaml:"store"`
	// MaxFile is the largest upload.
	MaxFile Size `yaml:"max_file" default:"200MB"`
	// TTL is how long a file is kept whose owner does not say.
	TTL time.Duration `yaml:"ttl" default:"30d"`
	// MaxOrgBytes is how much the files of an org may take before uploads and new
	// batches are refused; the output of open batches still is written. 0: no bound.
	MaxOrgBytes Size `yaml:"max_org_bytes" default:"100GB" min:"0"`
	// MaxUserBytes is the same for the files of one user. 0: as much as the org.
	MaxUserBytes Size `yaml:"max_user_bytes" default:"0" min:"0"`
	// MaxOrgFiles and MaxUserFiles are how many files an org and one user may have,
	// with the same effect.
	MaxOrgFiles  int `yaml:"max_org_files" default:"50000" min:"0"`
	MaxUserFiles int `yaml:"max_user_files" default:"25000" min:"0"`
}

// Batches bounds batches, whose lines are jobs of class batch.
type Batches struct {
	// MaxLines is how many requests a batch may have.
	MaxLines int `yaml:"max_lines" default:"50000"`
	// InQueue is how many lines of one batch are in Redis at a time.
	InQueue int `yaml:"in_queue" default:"1000"`
	// MaxOpen and MaxUserOpen are how many batches of an org and of one user may be
	// open: neither completed nor failed, expired or cancelled. 0: no bound.
	MaxOpen     int `yaml:"max_open" default:"500" min:"0"`
	MaxUserOpen int `yaml:"max_user_open" default:"250" min:"0"`
	// MaxEnded is how many ended batches of an org can be looked at, for 31 days: the
	// newest. 0: all.
	MaxEnded int `yaml:"max_ended" default:"10000" min:"0"`
	// OverBudget is what becomes of a batch whose lines together may cost more
	// than a limit lets through in 24 hours. warn: it runs, the batch object says
	// so, and lines that do not fit in time end as batch_expired. refuse: it
	// fails. One whose input alone costs more fails in both cases.
	OverBudget string `yaml:"over_budget" default:"warn" enum:"warn,refuse"`
	// Poll is how often a batch that its provider runs (batch_mode: provider) is
	// looked at there.
	Poll time.Duration `yaml:"poll" default:"30s"`
	// Doubt is how long such a batch is looked for in the provider's list, when the
	// answer to its creation was lost, before another one is made. It should be
	// longer than a creation ever takes: one that succeeds after that is paid for
	// twice.
	Doubt time.Duration `yaml:"doubt" default:"2m"`
}

// Memory bounds the bytes of bodies and answers under way in each process. An org that
// takes all it can get leaves about half of each bound to others. What finds no room
// within seconds is refused with 503 and Retry-After.
type Memory struct {
	// Bodies is how much memory they take at most. A body counts until it has been
	// sent, an answer until it has been handed on or is in a file. 0: a quarter of what
	// the process may use, which is GOMEMLIMIT, else the limit of its cgroup, else the
	// machine's memory; at least twice requests.max_body. Given, at least
	// requests.max_body.
	Bodies Size `yaml:"bodies" default:"0" min:"0"`
	// Spool is how many bytes of them may be in files of the temporary directory
	// (TMPDIR), where those above 1 MiB are while they are on their way. Make sure that
	// the directory has the space, and is on a disk. Given, at least requests.max_body; 0:
	// no files, memory has them all.
	Spool Size `yaml:"spool" default:"2GB" min:"0"`
}

// checkRoom checks that the largest body has the room that was given for it.
func checkRoom(m *mistakes, cfg *Config) {
	for path, size := range map[string]Size{"memory.bodies": cfg.Memory.Bodies, "memory.spool": cfg.Memory.Spool} {
		if m.given(path) && size > 0 && size < cfg.Requests.MaxBody {
			m.failAt(path, "%d bytes have no room for a body of requests.max_body, which is %d bytes", size,
				cfg.Requests.MaxBody)
		}
	}
}
