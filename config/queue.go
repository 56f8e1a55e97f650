package config

import (
	"time"
)

// Queue bounds waiting, for all pools.
type Queue struct {
	// ResultTTL is how long a finished job and its result stay readable, and
	// an Idempotency-Key leads to its answer.
	ResultTTL time.Duration `yaml:"result_ttl" default:"1d" reload:"restart"`
	// Lease is how long a job stays with a worker that has stopped answering.
	Lease time.Duration `yaml:"lease" default:"30s" reload:"restart"`
	// Shutdown is how long a stopping worker lets its jobs go on before it
	// puts them back.
	Shutdown time.Duration `yaml:"shutdown" default:"30s" reload:"restart"`
	// Hold is how long a plain (not streaming) caller's connection is kept
	// silent before it gets 429 with Retry-After. Node clients give up at 300 s
	// on their own.
	Hold time.Duration `yaml:"hold" default:"280s" reload:"restart"`
	// KeepAlive is the pause between the newlines a waiting stream gets.
	KeepAlive time.Duration `yaml:"keep_alive" default:"15s" reload:"restart"`
	// SealKeys encrypt the bodies and answers of jobs and conversations in Redis,
	// and the files in files.store (AES-256-GCM). The first seals, all open: put a
	// new one in front, and drop an old one when max_age, result_ttl,
	// conversations.ttl and the life of files (30 days, or files.ttl) have passed.
	// Left out: they are kept as they are.
	SealKeys []SealKey `yaml:"seal_keys"`
	// BlobAbove is the size above which the body or the answer of a job is kept in
	// files.store and not in Redis, encrypted under seal_keys all the same. An
	// answer moves there at its end. 0, or no files.store: Redis keeps all.
	BlobAbove Size `yaml:"blob_above" default:"64KiB" min:"0"`
	// OrgShare and UserShare are the most of a pool's max_jobs and max_bytes
	// that one org and one user may hold, in percent.
	OrgShare  int `yaml:"org_share" default:"25"`
	UserShare int `yaml:"user_share" default:"25"`
	// MemoryShare is the part of Redis's maxmemory, in percent, beyond which Redis
	// takes in no bodies, answers and responses, so that limits are still counted and
	// what runs can end. Without maxmemory it is that part of the machine's memory.
	MemoryShare int `yaml:"memory_share" default:"80"`
	// MemoryOrgShare is how much of that memory one org may have with its bodies,
	// answers and responses, in percent of what the other orgs leave. With 50 an org
	// alone may have a half, and each of two a third. 100: an org has no bound of its own.
	MemoryOrgShare int `yaml:"memory_org_share" default:"50"`
	// Shares guarantee each class of waiting jobs a part of a pool's quota.
	Shares Shares `yaml:"shares"`
	// MaxAttempts is how often a job is started before it fails and becomes a
	// dead letter: one that crashes its worker does no harm for ever.
	MaxAttempts int `yaml:"max_attempts" default:"3"`
	// RetryFor is how long after it was put a job without a connected caller is tried again when the
	// provider fails it (5xx), in pauses of 2 s, 4 s, 8 s and so on; max_age of its pool bounds
	// it too. Then it fails and becomes a dead letter. 0: the first failure is the last.
	RetryFor time.Duration `yaml:"retry_for" default:"1d" min:"0"`
	// DeadLetters is how many failed jobs of a pool can be replayed; the oldest
	// make way. DeadTTL is for how long.
	DeadLetters int           `yaml:"dead_letters" default:"1000"`
	DeadTTL     time.Duration `yaml:"dead_ttl" default:"7d"`
}

// SealKey is one such key.
type SealKey struct {
	// ID is written beside what the key seals.
	ID string `yaml:"id,required" kind:"id"`
	// Secret is at least 16 characters, from the environment in production:
	// openssl rand -hex 32.
	Secret Secret `yaml:"secret,required"`
}

// Shares are percentages of a pool's quota, 100 at most together. A class has its
// share while jobs of it wait; live calls leave all of them.
type Shares struct {
	// Interactive jobs have a connected caller.
	Interactive int `yaml:"interactive" default:"20"`
	// Async jobs were asked for with Prefer: respond-async.
	Async int `yaml:"async" default:"10"`
	// Batch jobs are those of batches.
	Batch int `yaml:"batch" default:"5"`
}
