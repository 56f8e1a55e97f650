package config

import (
	"time"
)

// Queue is how calls wait, for all pools.
type Queue struct {
	// ResultTTL is how long a finished job, its result and the answer of an Idempotency-Key can be read.
	ResultTTL time.Duration `yaml:"result_ttl" default:"1d" reload:"restart"`
	// Lease is how long a job stays with a worker that does not respond.
	Lease time.Duration `yaml:"lease" default:"30s" reload:"restart"`
	// Shutdown is how long a stopping worker continues its jobs before it returns them to the queue.
	Shutdown time.Duration `yaml:"shutdown" default:"30s" reload:"restart"`
	// Hold is how long a plain (not streaming) call may take, waiting included, before it gets 429 with Retry-After.
	// Node clients give up at 300 s.
	Hold time.Duration `yaml:"hold" default:"280s" reload:"restart"`
	// KeepAlive is the interval of empty lines in a waiting stream.
	KeepAlive time.Duration `yaml:"keep_alive" default:"15s" reload:"restart"`
	// SealKeys encrypt bodies and answers of jobs and conversations in Redis, and files in files.store: see
	// docs/operations.md. Default: no encryption.
	SealKeys []SealKey `yaml:"seal_keys"`
	// BlobAbove is the size above which a job's body or answer is stored in files.store instead of Redis. 0, or
	// without files.store: none.
	BlobAbove Size `yaml:"blob_above" default:"64KiB" min:"0"`
	// OrgShare and UserShare are the percentage of a pool's max_jobs and max_bytes for one org and one user.
	OrgShare  int `yaml:"org_share" default:"25" range:"1..100 percent"`
	UserShare int `yaml:"user_share" default:"25" range:"1..100 percent"`
	// MemoryShare is the percentage of Redis's maxmemory (or of the machine's memory) beyond which nothing more of
	// callers is stored.
	MemoryShare int `yaml:"memory_share" default:"80" range:"1..100 percent"`
	// MemoryOrgShare is one org's part of that memory, as a percentage of what other orgs leave. 100: no limit.
	MemoryOrgShare int    `yaml:"memory_org_share" default:"50" range:"1..100 percent"`
	Shares         Shares `yaml:"shares"`
	// MaxAttempts is how often a job is started before it becomes a dead letter.
	MaxAttempts int `yaml:"max_attempts" default:"3"`
	// RetryFor is how long after its submission a job without a connected caller is retried after a 5xx, within the
	// pool's max_age. 0: no retries.
	RetryFor time.Duration `yaml:"retry_for" default:"1d" min:"0"`
	// DeadLetters is how many dead letters a pool keeps, the newest, for DeadTTL.
	DeadLetters int           `yaml:"dead_letters" default:"1000"`
	DeadTTL     time.Duration `yaml:"dead_ttl" default:"7d"`
}

// SealKey is one key.
type SealKey struct {
	ID string `yaml:"id,required" kind:"id" unique:"list"`
	// Secret is made with openssl rand -hex 32.
	Secret Secret `yaml:"secret,required" range:"16.. characters"`
}

// Shares are percentages of a pool's quota, together at most 100. A class has its share while its jobs wait; live
// calls leave all shares free.
type Shares struct {
	// Interactive jobs have a connected caller, Async jobs were submitted with Prefer: respond-async, and Batch jobs
	// are lines of batches.
	Interactive int `yaml:"interactive" default:"20" range:"1..100 percent"`
	Async       int `yaml:"async" default:"10" range:"1..100 percent"`
	Batch       int `yaml:"batch" default:"5" range:"1..100 percent"`
}
