package queue

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// poolKeys returns the keys of a pool, in the order of pool_keys in rings.lua.
// docs/internals/redis-keys.md describes their contents and the other keys.
func poolKeys(pool string) []string {
	names := []string{
		"quota", "slots", "claims", "claimed", "parked", "probes", "fair", "size", "present", "due", "cancels",
		"wait:interactive", "wait:async", "wait:batch", "orgs:interactive", "orgs:async", "orgs:batch",
		"users:interactive", "users:async", "users:batch", "shut", "dead", "ended",
	}
	keys := make([]string, len(names), len(names)+1)
	for i, name := range names {
		keys[i] = quota.Key(pool, name)
	}
	return keys
}

// PoolKey reports whether the key lg:{<id>}:<name> belongs to a pool, and not to an org
// with the same id.
func PoolKey(name string) bool {
	for _, prefix := range []string{"job:", "proc:", "weights:"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "turns" || slices.Contains(poolKeys(""), quota.Key("", name))
}

// AllJobs returns the pattern that matches the keys of all jobs.
func AllJobs() string { return jobKey("*", "*") }

// SplitJobKey returns the pool and the id of the job with this key.
func SplitJobKey(key string) (pool, id string) {
	before, after, _ := strings.Cut(AllJobs(), "*")
	between, _, _ := strings.Cut(after, "*")
	pool, id, _ = strings.Cut(strings.TrimPrefix(key, before), between)
	return pool, id
}

// DeadKey returns the key of a pool's list of dead letters.
func DeadKey(pool string) string { return quota.Key(pool, "dead") }

func jobKey(pool, id string) string       { return quota.Key(pool, "job:"+id) }
func procKey(pool, process string) string { return quota.Key(pool, "proc:"+process) }
func turnsKey(pool string) string         { return quota.Key(pool, "turns") }
func weightsKey(pool, name string) string { return quota.Key(pool, "weights:"+name) }
func orgIndex(org string) string          { return "lg:{" + org + "}:jobs" }
func userIndex(org, user string) string   { return "lg:{" + org + "}:jobs:" + user }

// Channels: jobChannel carries "s" (state changed) and "o" (more output), cancelChannel the
// id of a running job to cancel, workChannel calls for workers.
func jobChannel(id string) string      { return "lg:job:" + id }
func cancelChannel(pool string) string { return "lg:cancel:" + pool }
func workChannel(pool string) string   { return "lg:work:" + pool }

// lane identifies what a limit can refuse separately within a flow: the job's key and
// model, three hash letters of each, which rarely collide within a flow.
func lane(key, model string) string { return letters(key)[:3] + letters(model)[:3] }

func letters(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))
}

const (
	jobPrefix   = "job_"
	poolCodeLen = 5
	ownCodeLen  = 10 // for pools that belong to an org, whose names cannot change
	ulidLen     = 26
)

// poolCode returns the part of a job id that identifies its pool.
func poolCode(pool string) string {
	if _, org := providers.SplitPool(pool); org != "" {
		return letters(pool)[:ownCodeLen]
	}
	return letters(pool)[:poolCodeLen]
}

// idCode returns the pool code in a job id, or "" if the id is malformed.
func idCode(id string) string {
	rest, ok := strings.CutPrefix(id, jobPrefix)
	code := len(rest) - ulidLen
	if !ok || code != poolCodeLen && code != ownCodeLen || !plain(rest) {
		return ""
	}
	return rest[:code]
}

// plain reports whether s is a non-empty string of [a-z0-9_-]. Pool, org and user ids are;
// it keeps them unambiguous inside keys and members.
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}

func checkPlain(what, s string) error {
	if !plain(s) {
		return fmt.Errorf("queue: %s %q is not of [a-z0-9_-]", what, s)
	}
	return nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
