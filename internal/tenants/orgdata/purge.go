package orgdata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

var (
	// ErrOpen means that the org has unfinished work.
	ErrOpen = errors.New("wait for them to finish, or cancel them")
	// ErrDeclared means that the org is in the configuration file, which would create it again.
	ErrDeclared = errors.New("it is in the configuration file")
	// ErrEnabled means that the org is not disabled, so its keys can still make calls.
	ErrEnabled = errors.New("it is not disabled")
)

// Purge deletes the data of an org. Every step can be repeated, and anything that refers to
// other data is deleted after it, so that the next purge completes one that was interrupted.
type Purge struct {
	Redis   redisconn.DB
	Tenants *tenants.Store // must be loaded
	Blobs   *blob.Store    // nil if there is none
	Org     string
	// Declared means that the configuration file defines the org.
	Declared bool
	// Ledger also deletes the ledger, daily sums and corrections.
	Ledger bool
}

// Found counts the data of an org.
type Found struct {
	Records int `json:"records"` // of the org, its users, keys, limits, overrides and credentials
	Keys    int `json:"keys"`    // in Redis, including what is counted below
	Jobs    int `json:"jobs"`
	Batches int `json:"batches"`
	Files   int `json:"files"`
}

// Any reports whether there is any data.
func (f Found) Any() bool { return f != Found{} }

// Allowed returns ErrDeclared or ErrEnabled if the org may not be purged.
func (p *Purge) Allowed() error {
	if p.Declared {
		return fmt.Errorf("org %s: %w", p.Org, ErrDeclared)
	}
	t := p.Tenants.Snapshot().Tenants[p.Org]
	if t != nil && t.Org != nil && !t.Org.Fields.Is("disabled") {
		return fmt.Errorf("org %s: %w", p.Org, ErrEnabled)
	}
	return nil
}

// Look counts what a purge would delete. The error wraps ErrOpen if there are unfinished calls,
// jobs or batches.
func (p *Purge) Look(ctx context.Context) (found Found, err error) {
	places, err := budget.Places(ctx, p.Redis, p.Org)
	if err != nil {
		return found, fmt.Errorf("orgdata: %w", err)
	}
	held := int64(0)
	for _, place := range places {
		n, err := p.Redis.HLen(ctx, budget.HoldsKey(place)).Result()
		if err != nil {
			return found, fmt.Errorf("orgdata: %w", err)
		}
		held += n
	}
	if held > 0 {
		return found, fmt.Errorf("%d calls of org %s are still open: %w", held, p.Org, ErrOpen)
	}
	found.Records = len(p.records())
	open := 0
	count := func(total *int, ended bool) error {
		*total++
		if !ended {
			open++
		}
		return nil
	}
	err = p.jobs(ctx, func(_ string, j job) error { return count(&found.Jobs, j.state.Terminal()) })
	if err == nil && open > 0 {
		err = fmt.Errorf("%d jobs of org %s are waiting or running: %w", open, p.Org, ErrOpen)
	}
	if err != nil {
		return found, err
	}
	err = p.batches(ctx, func(_ string, s batch.Status) error { return count(&found.Batches, s.Terminal()) })
	if err == nil && open > 0 {
		err = fmt.Errorf("%d batches of org %s have not finished: %w", open, p.Org, ErrOpen)
	}
	if err == nil {
		err = p.files(ctx, func(string) error { return count(&found.Files, true) })
	}
	if err == nil {
		err = p.own(ctx, func(keys []string) error { found.Keys += len(keys); return nil })
	}
	return found, err
}

// Run deletes everything. It first writes an audit entry about the start, and deletes the org's
// own record last, together with the final audit entry.
func (p *Purge) Run(ctx context.Context, entry tenants.AuditEntry, found Found) error {
	plan := map[string]any{"ledger": p.Ledger, "found": found}
	if err := p.note(ctx, entry, "org.purge.begin", plan); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		p.removeJobs, p.removePools, p.removeBatches, p.removeFiles,
		p.removeAnswers, p.removeOwn, p.removeShared, p.removeCount,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := p.removeRecords(ctx, entry); err != nil {
		return err
	}
	return p.note(ctx, entry, "org.purge", plan, tenants.Ref{Kind: tenants.KindOrg, Org: p.Org, ID: p.Org})
}

// note writes an audit entry and deletes records in the same write.
func (p *Purge) note(ctx context.Context, entry tenants.AuditEntry, action string, after any,
	refs ...tenants.Ref,
) error {
	text, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("orgdata: %w", err)
	}
	entry.At, entry.Action, entry.Org, entry.Target, entry.After = time.Now().UTC(), action, p.Org, p.Org, text
	changes := make([]tenants.Change, 0, len(refs))
	for _, ref := range refs {
		var record map[string]any
		old, err := p.Tenants.Get(ctx, ref, &record)
		if err != nil {
			return err
		}
		if old != "" {
			changes = append(changes, tenants.Change{Ref: ref, Old: old})
		}
	}
	return p.Tenants.Commit(ctx, entry, changes...)
}

// books reports whether a key belongs to the ledger, which is deleted only with Ledger, or says in
// which parts it is.
func books(name string) bool {
	return slices.Contains([]string{"ledger", "audit", "reconcile", "export", "parts"}, name) ||
		strings.HasPrefix(name, "sums:")
}

// own lists the keys to delete.
func (p *Purge) own(ctx context.Context, fn func(keys []string) error) error {
	return own(ctx, p.Redis, p.Org, func(keys, names []string) error {
		chosen := keys[:0]
		for i, name := range names {
			if p.Ledger || !books(name) {
				chosen = append(chosen, keys[i])
			}
		}
		return fn(chosen)
	})
}

func (p *Purge) removeOwn(ctx context.Context) error {
	return p.own(ctx, func(keys []string) error { return p.unlink(ctx, keys...) })
}

// unlink deletes keys in any slots.
func (p *Purge) unlink(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	pipe := p.Redis.Pipeline()
	for _, k := range keys {
		pipe.Unlink(ctx, k)
	}
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("orgdata: remove keys: %w", err)
	}
	return nil
}

// job holds what a purge needs to know about a job.
type job struct {
	id, pool string
	state    queue.State
	attempts int
}

// jobs calls fn for the org's jobs in all pools, including those in no list, such as a batch's.
func (p *Purge) jobs(ctx context.Context, fn func(key string, j job) error) error {
	return p.whose(ctx, queue.AllJobs(), []string{"state", "attempt"}, func(key string, values []string) error {
		pool, id := queue.SplitJobKey(key)
		attempts, _ := strconv.Atoi(values[1])
		return fn(key, job{id, pool, queue.State(values[0]), attempts})
	})
}

func (p *Purge) batches(ctx context.Context, fn func(id string, s batch.Status) error) error {
	return p.whose(ctx, batch.AllRecords(), []string{"status"}, func(key string, values []string) error {
		return fn(batch.SplitRecordKey(key), batch.Status(values[0]))
	})
}

// whose calls fn for the matching hashes whose field org is this org.
func (p *Purge) whose(ctx context.Context, match string, fields []string,
	fn func(key string, values []string) error,
) error {
	return scan(ctx, p.Redis, match, func(keys []string) error {
		pipe := p.Redis.Pipeline()
		reads := make([]redisconn.Cmd[[]any], len(keys))
		for i, k := range keys {
			reads[i] = pipe.HMGet(ctx, k, append([]string{"org"}, fields...)...)
		}
		if err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("orgdata: read %s: %w", match, err)
		}
		for i, k := range keys {
			values := make([]string, len(fields)+1)
			for n, v := range reads[i].Val() {
				values[n], _ = v.(string)
			}
			if values[0] != p.Org {
				continue
			}
			if err := fn(k, values[1:]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *Purge) removeJobs(ctx context.Context) error {
	return p.jobs(ctx, func(key string, j job) error {
		contents, blobs := queue.ContentKeys(j.id, j.attempts)
		if err := p.removeBlobs(ctx, blobs...); err != nil {
			return err
		}
		if err := p.unlink(ctx, contents...); err != nil {
			return err
		}
		if err := p.Redis.ZRem(ctx, queue.DeadKey(j.pool), j.id).Err(); err != nil {
			return fmt.Errorf("orgdata: remove a dead letter: %w", err)
		}
		return p.unlink(ctx, key)
	})
}

// removePools deletes the org's own pools, which are empty by then.
func (p *Purge) removePools(ctx context.Context) error {
	unlink := func(keys []string) error { return p.unlink(ctx, keys...) }
	if err := scan(ctx, p.Redis, quota.Key(providers.OwnPool("*", p.Org), "*"), unlink); err != nil {
		return err
	}
	return queue.ForgetOwn(ctx, p.Redis, p.Org)
}

func (p *Purge) removeBlobs(ctx context.Context, names ...string) error {
	if p.Blobs == nil {
		return nil
	}
	for _, n := range names {
		if err := p.Blobs.Remove(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// removeCount removes the org's bytes from the accounting of Redis memory.
func (p *Purge) removeCount(ctx context.Context) error {
	return capacity.New(p.Redis, nil, capacity.Options{}, nil).ReleaseOrg(ctx, p.Org)
}

func (p *Purge) removeBatches(ctx context.Context) error {
	return p.batches(ctx, func(id string, _ batch.Status) error {
		keys := batch.Keys(id)
		slices.Reverse(keys) // the record, which refers to the others, goes last
		return p.unlink(ctx, keys...)
	})
}

// files calls fn for the org's entries, "org user id", in the index of all file blobs. An entry
// exists from before the first byte is written until after the last is deleted.
func (p *Purge) files(ctx context.Context, fn func(member string) error) error {
	var failed error
	err := redisconn.Pairs(func(cursor uint64) redisconn.Scan {
		return p.Redis.ZScan(ctx, files.DueKey, cursor, p.Org+" *", scanStep)
	}, func(member, _ string) error {
		failed = fn(member)
		return failed
	})
	if err != nil && failed == nil {
		return fmt.Errorf("orgdata: list files: %w", err)
	}
	return failed
}

func (p *Purge) removeFiles(ctx context.Context) error {
	return p.files(ctx, func(member string) error {
		if p.Blobs == nil {
			return errors.New("the org has files, but files.store is not accessible from here")
		}
		parts := strings.Fields(member)
		if err := p.removeBlobs(ctx, parts[0]+"/"+parts[len(parts)-1]); err != nil {
			return err
		}
		if err := p.Redis.ZRem(ctx, files.DueKey, member).Err(); err != nil {
			return fmt.Errorf("orgdata: remove a file: %w", err)
		}
		return nil
	})
}

// removeAnswers deletes what the org's response cache has in files.store. Without access to it,
// the sweep of the proxies does so after removeOwn.
func (p *Purge) removeAnswers(ctx context.Context) error {
	if p.Blobs == nil {
		return nil
	}
	_, err := p.Blobs.RemoveAll(ctx, cache.BlobPrefix(p.Org), 0)
	return err
}

// removeShared removes the org from data shared by all orgs.
func (p *Purge) removeShared(ctx context.Context) error {
	places, err := p.Redis.ZRange(ctx, budget.Registry, 0, -1).Result()
	for _, place := range places {
		if err == nil && ledger.OrgOf(place) == p.Org {
			err = p.Redis.ZRem(ctx, budget.Registry, place).Err()
		}
	}
	if err != nil {
		return fmt.Errorf("orgdata: %w", err)
	}
	if p.Ledger {
		if err := p.Redis.ZRem(ctx, ledger.OrgsKey, p.Org).Err(); err != nil {
			return fmt.Errorf("orgdata: %w", err)
		}
	}
	return p.Tenants.ForgetUsed(ctx, p.Org)
}
