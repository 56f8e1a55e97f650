package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// directory stores blobs as files, whose paths are the blobs' names.
type directory struct{ root string }

func openDirectory(where string) (*directory, error) {
	root, err := filepath.Abs(where)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	return &directory{root}, nil
}

func (d *directory) close() {}

// path returns the file of a blob.
func (d *directory) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

func (d *directory) open(_ context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	f, err := os.Open(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = ErrNotFound
	}
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if length < 0 {
		return f, nil
	}
	return opened{io.LimitReader(f, length), f}, nil
}

// createTries limits how often create makes a directory that a concurrent remove deletes again.
const createTries = 10

func (d *directory) create(ctx context.Context, name string, exclusive bool) (upload, error) {
	path := d.path(name)
	for try := 1; ; try++ {
		f, err := createBeside(path)
		if err == nil {
			return &fileUpload{File: f, ctx: ctx, path: path, root: d.root, exclusive: exclusive}, nil
		}
		if try == createTries || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

// createBeside creates a temporary file next to path, because a rename must stay on one file
// system.
func createBeside(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	name := path + "." + strconv.FormatInt(time.Now().UnixNano(), 16) + ".tmp"
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (d *directory) remove(_ context.Context, name string) error {
	path := d.path(name)
	err := os.Remove(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.Count(name, "/") > 1 {
		_ = os.Remove(filepath.Dir(path)) // fails unless it is empty
	}
	return nil
}

func (d *directory) each(ctx context.Context, prefix string, fn func(name string, at time.Time) error) error {
	root := d.path(prefix[:strings.LastIndex(prefix, "/")+1])
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed concurrently
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		name, err := filepath.Rel(d.root, path)
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if path != root && !strings.HasPrefix(name+"/", prefix) {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if !strings.HasPrefix(name, prefix) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("blob: list: %w", err)
		}
		return fn(name, info.ModTime())
	})
}

// fileUpload writes a temporary file that commit renames.
type fileUpload struct {
	*os.File
	ctx        context.Context
	path, root string
	exclusive  bool
}

func (u *fileUpload) commit() error {
	err := u.ctx.Err()
	if err == nil {
		err = synced(u.Sync())
	}
	if err != nil {
		u.abort()
		return err
	}
	if err := u.File.Close(); err != nil {
		_ = os.Remove(u.Name())
		return err
	}
	if err := u.rename(); err != nil {
		_ = os.Remove(u.Name())
		return err
	}
	return u.syncParents()
}

func (u *fileUpload) rename() error {
	if !u.exclusive {
		return os.Rename(u.Name(), u.path)
	}
	err := os.Link(u.Name(), u.path)
	if err == nil {
		return os.Remove(u.Name())
	}
	// Some network file systems have no hard links. There, another process could create the
	// file between the check and the rename.
	_, missing := os.Lstat(u.path)
	if errors.Is(err, fs.ErrExist) || missing == nil {
		return errExists
	}
	return os.Rename(u.Name(), u.path)
}

// syncParents makes the file's name survive a power failure. The parent directories may be new,
// too.
func (u *fileUpload) syncParents() error {
	for at := filepath.Dir(u.path); ; at = filepath.Dir(at) {
		err := syncDirectory(at)
		if err != nil || at == u.root || at == filepath.Dir(at) {
			return err
		}
	}
}

func (u *fileUpload) abort() {
	_ = u.File.Close()
	_ = os.Remove(u.Name())
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return synced(dir.Sync())
}

// synced filters the error of a sync. Some network file systems do not support it; their
// servers take care of it.
func synced(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
