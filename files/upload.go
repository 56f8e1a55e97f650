package files

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/blob"
)

// uploadTime bounds an upload: what is not committed by then is deleted.
const uploadTime = 24 * time.Hour

// Upload is a file being written. It is for one goroutine, and ends with Commit
// or Abort.
type Upload struct {
	s  *Store
	o  Owner
	id string
	w  *blob.Writer
}

// Room returns ErrFull when the org can upload nothing more.
func (s *Store) Room(ctx context.Context, org string) error {
	if s.opts.OrgBytes == 0 {
		return nil
	}
	if err := s.kept(org).Expire(ctx); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	fields, err := s.rdb.HMGet(ctx, sizesKey(org), "bytes", "all").Result()
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	var used int64
	for _, field := range fields {
		text, _ := field.(string)
		n, _ := strconv.ParseInt(text, 10, 64)
		used += n
	}
	if used >= s.opts.OrgBytes {
		return ErrFull
	}
	return nil
}

// Begin starts to write a file with an id made by NewID. Writing one again
// after a crash replaces what was there.
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

// Write adds bytes.
func (u *Upload) Write(p []byte) (int, error) { return u.w.Write(p) }

// Size is the number of bytes written so far.
func (u *Upload) Size() int64 { return u.w.Size() }

// Abort forgets the upload; after Commit it does nothing.
func (u *Upload) Abort() { u.w.Abort() }

// Commit makes the file exist, for ttl or, when that is 0, the store's. It is
// idempotent on the id. The error may be ErrFull, but not for the output of a
// batch, which is paid for.
func (u *Upload) Commit(ctx context.Context, name, purpose string, ttl time.Duration) (*File, error) {
	if ttl <= 0 {
		ttl = u.s.opts.TTL
	}
	if err := u.w.Commit(); err != nil {
		return nil, err
	}
	most := u.s.opts.OrgBytes
	if purpose == BatchOutput {
		most = 0
	}
	at := append(u.s.kept(u.o.Org).Keys(), recordKey(u.o.Org, u.id), indexKey(u.o))
	reply, err := putScript.Run(ctx, u.s.rdb, at, u.s.clock, u.id, int64(ttl/time.Second), u.Size(),
		most, "user", u.o.User, "name", name, "purpose", purpose).Text()
	if err != nil {
		return nil, fmt.Errorf("files: commit: %w", err) // the sweep finds the bytes
	}
	w := strings.Fields(reply)
	if len(w) == 2 && w[0] == "full" {
		return nil, u.s.refuse(ctx, u)
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

// refuse deletes what was written of a file that does not fit.
func (s *Store) refuse(ctx context.Context, u *Upload) error {
	if err := s.blobs.Remove(ctx, blobName(u.o.Org, u.id)); err != nil {
		s.log.WarnContext(ctx, "a refused file is deleted later", "err", err)
	}
	return ErrFull
}
