// Package files stores what callers upload and what batches generate: the content in a blob
// store, and a small record each in Redis, in the slot of the owner's org. A file belongs to a
// user of an org; to everyone else it does not exist.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/lua"
)

var (
	putScript  = lua.Load("file_put")
	dropScript = lua.Load("file_drop")
	keepScript = lua.Load("file_keep")
)

var (
	// ErrNotFound is returned for a file that does not exist, has expired, or belongs to
	// another user.
	ErrNotFound = errors.New("files: no such file")
	// ErrFull rejects a file because its org or user has reached a storage limit. The error is
	// a *FullError.
	ErrFull = errors.New("files: the org or user has reached its storage limit")
)

// FullError reports the limit that a file would exceed.
type FullError struct {
	User  bool  // the user's limit; otherwise the org's
	Files bool  // on the number of files; otherwise on bytes
	Most  int64 // files or bytes
}

func (e *FullError) Error() string {
	whose, what := "org", "bytes"
	if e.User {
		whose = "user"
	}
	if e.Files {
		what = "files"
	}
	return fmt.Sprintf("files: the %s has reached its storage limit of %d %s", whose, e.Most, what)
}

// Is reports that the error is ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Purposes of files.
const (
	Batch       = "batch"
	BatchOutput = "batch_output"
)

// Owner owns a file. Both ids consist of [a-z0-9_-].
type Owner struct{ Org, User string }

// File is a stored file. It is a copy; changing it has no effect.
type File struct {
	ID string
	Owner
	Name, Purpose    string
	Bytes            int64
	Created, Expires time.Time // in whole seconds, by Redis's clock
}

// Options are the optional settings of a Store.
type Options struct {
	// TTL is the default lifetime of files; 0 means 30 days.
	TTL time.Duration
	// OrgBytes and UserBytes limit the bytes that an org and a user may store, OrgFiles and
	// UserFiles the number of files; 0 means no limit. OrgBytes includes what is stored for the
	// org in addition to its files, see Count.
	OrgBytes, UserBytes int64
	OrgFiles, UserFiles int64
	// Memory limits the memory of the files' records in Redis; nil: they are not counted.
	Memory *capacity.Memory
	// Logger defaults to slog.Default().
	Log *slog.Logger
}

// Store stores files. It is safe for concurrent use. Errors of Redis and of the blob store are
// returned wrapped.
type Store struct {
	rdb   redisconn.DB
	blobs *blob.Store
	opts  Options
	log   *slog.Logger
	clock string // test clock in microseconds; empty: Redis TIME
}

// New returns a Store. Call Run to delete expired files.
func New(rdb redisconn.DB, blobs *blob.Store, o Options) *Store {
	o.TTL = cmp.Or(o.TTL, 30*24*time.Hour)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Store{rdb: rdb, blobs: blobs, opts: o, log: o.Log}
}

// Blobs returns the blob store with the content.
func (s *Store) Blobs() *blob.Store { return s.blobs }

// agreedKey holds the identity of the blob store that all processes share.
const agreedKey = "lg:files:store"

// Agree makes sure that this process uses the same blob store as all others on this Redis; the
// first process determines it. It fails for a directory that is not shared, or that was
// emptied.
func (s *Store) Agree(ctx context.Context) error {
	id, err := s.blobs.Identity(ctx)
	if err != nil {
		return err
	}
	if err := s.rdb.SetNX(ctx, agreedKey, id, 0).Err(); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	agreed, err := s.rdb.Get(ctx, agreedKey).Result()
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	if agreed != id {
		return fmt.Errorf("files: %s is not the store that other processes with this Redis use: set files.store to the "+
			"same shared mount or bucket for all of them; if you replaced it on purpose, DEL %s in Redis", s.blobs,
			agreedKey)
	}
	return nil
}

// Agreed reports whether this is the blob store that the processes on this Redis use. It is for
// processes that only read.
func (s *Store) Agreed(ctx context.Context) bool {
	agreed, err := s.rdb.Get(ctx, agreedKey).Result()
	if err != nil {
		return false
	}
	id, err := s.blobs.Identity(ctx)
	return err == nil && id == agreed
}

func recordKey(org, id string) string { return "lg:{" + org + "}:file:" + id }
func indexKey(o Owner) string         { return "lg:{" + o.Org + "}:files:" + o.User }
func sizesKey(org string) string      { return "lg:{" + org + "}:filesizes" }
func blobName(org, id string) string  { return org + "/" + id }
func keys(o Owner, id string) []string {
	return []string{recordKey(o.Org, id), indexKey(o), sizesKey(o.Org)}
}

// keptKey is the prefix of the keys that count what is stored in addition to files.
func keptKey(org string) string { return "lg:{" + org + "}:kept" }

// File returns a file of an owner.
func (s *Store) File(ctx context.Context, o Owner, id string) (*File, error) {
	f, err := s.Find(ctx, o.Org, id)
	if err == nil && f.User != o.User {
		return nil, ErrNotFound
	}
	return f, err
}

// Find returns a file of any user of an org.
func (s *Store) Find(ctx context.Context, org, id string) (*File, error) {
	if !validID(id) {
		return nil, ErrNotFound
	}
	h, err := s.rdb.HGetAll(ctx, recordKey(org, id)).Result()
	if err != nil {
		return nil, fmt.Errorf("files: read: %w", err)
	}
	f := decode(org, id, h)
	if f == nil || !time.Now().Before(f.Expires) {
		return nil, ErrNotFound
	}
	return f, nil
}

func decode(org, id string, h map[string]string) *File {
	if h["created"] == "" || h["deleted"] != "" {
		return nil
	}
	n := func(field string) int64 { v, _ := strconv.ParseInt(h[field], 10, 64); return v }
	return &File{
		ID: id, Owner: Owner{org, h["user"]}, Name: h["name"], Purpose: h["purpose"], Bytes: n("bytes"),
		Created: time.Unix(n("created"), 0), Expires: time.Unix(n("expires"), 0),
	}
}

// Open reads a file from an offset; it returns ErrNotFound if its content is gone.
func (s *Store) Open(ctx context.Context, f *File, offset int64) (io.ReadCloser, error) {
	r, err := s.blobs.Open(ctx, blobName(f.Org, f.ID), offset)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, ErrNotFound
	}
	return r, err
}

// Keep keeps the content of a file until a time, even if the file itself is deleted or expires
// earlier. It returns ErrNotFound if the file is already deleted.
func (s *Store) Keep(ctx context.Context, f *File, until time.Time) error {
	if err := s.rdb.ZAddGT(ctx, DueKey,
		redisconn.Z{Score: float64(until.Unix()), Member: due(f.Owner, f.ID)}).Err(); err != nil {
		return fmt.Errorf("files: keep: %w", err)
	}
	reply, err := keepScript.Run(ctx, s.rdb, keys(f.Owner, f.ID)[:1], until.Unix()).Text()
	if err != nil {
		return fmt.Errorf("files: keep: %w", err)
	}
	if reply != "ok" {
		return ErrNotFound
	}
	return nil
}

// Remove deletes a file of an owner.
func (s *Store) Remove(ctx context.Context, o Owner, id string) error {
	if _, err := s.File(ctx, o, id); err != nil {
		return err
	}
	return s.drop(ctx, o, id, "1")
}

// drop deletes a file and its content, or schedules the deletion of the content.
func (s *Store) drop(ctx context.Context, o Owner, id, asked string) error {
	reply, err := dropScript.Run(ctx, s.rdb, keys(o, id), s.clock, id, asked, o.User).Text()
	if err != nil {
		return fmt.Errorf("files: drop: %w", err)
	}
	stay, _ := strconv.ParseInt(reply, 10, 64)
	if stay > 0 {
		return s.expect(ctx, o, id, time.Duration(stay)*time.Second)
	}
	if err := s.blobs.Remove(ctx, blobName(o.Org, id)); err != nil {
		return err
	}
	if err := s.release(ctx, id); err != nil {
		return err
	}
	return s.unlist(ctx, o, id)
}

// unlist removes a deleted blob from the list of due blobs.
func (s *Store) unlist(ctx context.Context, o Owner, id string) error {
	if err := s.rdb.ZRem(ctx, DueKey, due(o, id)).Err(); err != nil {
		return fmt.Errorf("files: drop: %w", err)
	}
	return nil
}

// DueKey lists the blobs of all files, "org user id", by the Unix second at which they should
// be checked for deletion. A blob is listed before its first byte is written, so that none is
// ever lost track of.
const DueKey = "lg:{files}:due"

func due(o Owner, id string) string { return o.Org + " " + o.User + " " + id }

func (s *Store) expect(ctx context.Context, o Owner, id string, in time.Duration) error {
	z := redisconn.Z{Score: float64(time.Now().Add(in).Unix()), Member: due(o, id)}
	if err := s.rdb.ZAdd(ctx, DueKey, z).Err(); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	return nil
}

const (
	sweepEvery = time.Minute
	sweepMost  = 1000
)

// Run deletes expired files until ctx is done; then it returns nil.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "expired files not deleted, the next sweep will retry", "err", err)
			}
		}
	}
}

func (s *Store) sweep(ctx context.Context, now time.Time) error {
	list, err := s.rdb.ZRangeByScore(ctx, DueKey,
		redisconn.Between{Min: "-inf", Max: strconv.FormatInt(now.Unix(), 10), Count: sweepMost}).Result()
	if err != nil {
		return fmt.Errorf("files: sweep: %w", err)
	}
	for _, member := range list {
		parts := strings.Fields(member)
		if len(parts) != 3 {
			continue
		}
		if err := s.drop(ctx, Owner{parts[0], parts[1]}, parts[2], ""); err != nil {
			return err
		}
	}
	return nil
}
