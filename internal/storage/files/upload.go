package files

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/storage/blob"
)

// uploadTime limits an upload; what is not committed by then is deleted.
const uploadTime = 24 * time.Hour

// Upload is a file being written. It is not safe for concurrent use, and ends with Commit or
// Abort.
type Upload struct {
	s  *Store
	o  Owner
	id string
	w  *blob.Writer

	stored bool // its content may exist
}

// bounds returns the limits of an owner in the order in which file_put takes them.
func (s *Store) bounds() []FullError {
	o := s.opts
	return []FullError{
		{Most: o.OrgBytes},
		{Most: o.UserBytes, User: true},
		{Most: o.OrgFiles, Files: true},
		{Most: o.UserFiles, User: true, Files: true},
	}
}

// Room returns a *FullError if the owner cannot store anything more.
func (s *Store) Room(ctx context.Context, o Owner) error {
	if err := s.kept(o.Org).Expire(ctx); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	pipe := s.rdb.Pipeline()
	sums := pipe.HMGet(ctx, sizesKey(o.Org), "bytes", "all", "bytes:"+o.User, "files")
	count := pipe.ZCard(ctx, indexKey(o))
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	var n [4]int64
	for i, sum := range sums.Val() {
		text, _ := sum.(string)
		n[i], _ = strconv.ParseInt(text, 10, 64)
	}
	used := []int64{n[0] + n[1], n[2], n[3], count.Val()}
	for i, b := range s.bounds() {
		if b.Most > 0 && used[i] >= b.Most {
			return &b
		}
	}
	return nil
}

// Begin starts writing a file with an id from NewID. After a crash, writing the same id again
// replaces what was there.
func (s *Store) Begin(ctx context.Context, o Owner, id string) (*Upload, error) {
	if err := s.expect(ctx, o, id, uploadTime); err != nil {
		return nil, err
	}
	w, err := s.blobs.Create(ctx, blobName(o.Org, id))
	if err != nil {
		return nil, err
	}
	return &Upload{s: s, o: o, id: id, w: w}, nil
}

// Write appends bytes.
func (u *Upload) Write(p []byte) (int, error) { return u.w.Write(p) }

// Size returns the number of bytes written so far.
func (u *Upload) Size() int64 { return u.w.Size() }

// Abort discards the upload; after Commit it does nothing.
func (u *Upload) Abort() { u.w.Abort() }

// Discard is Abort for an upload whose id will not be reused: nothing of it stays in Redis.
func (u *Upload) Discard(ctx context.Context) {
	if u.stored {
		return
	}
	u.w.Abort()
	if err := u.s.unlist(ctx, u.o, u.id); err != nil {
		u.s.log.WarnContext(ctx, "discarded upload not removed from the list, will retry", "err", err)
	}
}

// Commit stores the file for ttl, or if that is 0, for the store's TTL. It is idempotent per
// id. The error may be a *FullError, except for the output of a batch, which has been paid for,
// or a *capacity.FullError.
func (u *Upload) Commit(ctx context.Context, name, purpose string, ttl time.Duration) (*File, error) {
	if ttl <= 0 {
		ttl = u.s.opts.TTL
	}
	u.stored = true
	if err := u.w.Commit(); err != nil {
		return nil, err
	}
	if err := u.admit(ctx, &File{ID: u.id, Owner: u.o, Name: name, Purpose: purpose}, ttl); err != nil {
		u.s.refuse(ctx, u)
		return nil, err
	}
	bounds := u.s.bounds()
	args := []any{u.s.clock, u.id, int64(ttl / time.Second), u.Size(), u.o.User}
	for _, b := range bounds {
		if purpose == BatchOutput {
			b.Most = 0
		}
		args = append(args, b.Most)
	}
	args = append(args, "user", u.o.User, "name", name, "purpose", purpose)
	at := append(u.s.kept(u.o.Org).Keys(), recordKey(u.o.Org, u.id), indexKey(u.o))
	reply, err := putScript.Run(ctx, u.s.rdb, at, args...).Text()
	if err != nil {
		return nil, fmt.Errorf("files: commit: %w", err) // the sweep will find the content
	}
	w := strings.Fields(reply)
	if len(w) == 2 && w[0] == "full" {
		n, err := strconv.Atoi(w[1])
		if err != nil || n < 1 || n > len(bounds) {
			return nil, fmt.Errorf("files: commit replied %q", reply)
		}
		u.s.refuse(ctx, u)
		return nil, &bounds[n-1]
	}
	if len(w) != 3 {
		return nil, fmt.Errorf("files: commit replied %q", reply)
	}
	created, _ := strconv.ParseInt(w[1], 10, 64)
	expires, _ := strconv.ParseInt(w[2], 10, 64)
	f := &File{
		ID: u.id, Owner: u.o, Name: name, Purpose: purpose, Bytes: u.Size(),
		Created: time.Unix(created, 0), Expires: time.Unix(expires, 0),
	}
	return f, u.s.expect(ctx, u.o, u.id, time.Until(f.Expires))
}

// refuse deletes the content of a file that exceeds a limit.
func (s *Store) refuse(ctx context.Context, u *Upload) {
	err := s.blobs.Remove(ctx, blobName(u.o.Org, u.id))
	if err == nil {
		err = errors.Join(s.release(ctx, u.id), s.unlist(ctx, u.o, u.id))
	}
	if err != nil {
		s.log.WarnContext(ctx, "refused file not deleted, will retry", "err", err)
	}
}
