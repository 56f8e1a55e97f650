package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// suffix marks the journal files in a directory.
const suffix = ".journal"

// errTaken means that another process has the file.
var errTaken = errors.New("journal: another process has this file")

// adopt takes every file of the directory that no running process has locked. The first becomes
// this process's file; the records of the others move into it. If there is none, adopt creates one.
func (j *Journal) adopt() error {
	names, err := filepath.Glob(filepath.Join(j.dir, "*"+suffix))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	var others []*os.File
	defer func() {
		for _, f := range others {
			f.Close()
		}
	}()
	for _, name := range names {
		f, err := take(name)
		if errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			return err
		}
		if j.file == nil {
			j.file, j.name = f, name
		} else {
			others = append(others, f)
		}
		if err := j.read(f); err != nil {
			return err
		}
	}
	if j.file == nil {
		j.file, err = j.fresh()
		if err != nil {
			return err
		}
		j.name = j.file.Name()
	}
	if err := j.rewrite(); err != nil {
		return err
	}
	for _, f := range others { // their records are now on disk here
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if len(j.live) > 0 {
		j.opts.Log.Warn("journal has records of an earlier process", "dir", j.dir, "records", len(j.live))
	}
	return nil
}

// read applies the records of a file that another process left behind.
func (j *Journal) read(f *os.File) error {
	text, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	ops, skipped := parse(text)
	for _, o := range ops {
		j.apply(o)
	}
	if skipped > 0 {
		j.opts.Log.Warn("incomplete or damaged record at the end of the journal skipped",
			"file", f.Name(), "bytes", skipped)
	}
	return nil
}

// fresh creates a file under the first free name.
func (j *Journal) fresh() (*os.File, error) {
	for n := range 10_000 {
		f, err := create(filepath.Join(j.dir, fmt.Sprintf("settles-%d%s", n, suffix)))
		if errors.Is(err, os.ErrExist) || errors.Is(err, errTaken) {
			continue
		}
		return f, err
	}
	return nil, fmt.Errorf("journal: no free name in %s", j.dir)
}

// create creates and locks a file that must not exist.
func create(name string) (*os.File, error) {
	flags := os.O_RDWR | os.O_CREATE
	if filepath.Ext(name) == suffix {
		flags |= os.O_EXCL
	} else {
		flags |= os.O_TRUNC // left by a process that died while rewriting
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := own(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// take opens a file and locks it; errTaken if another process has it.
func take(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errTaken // it was emptied and removed meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := own(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// own locks a file until it is closed, and checks that its name still refers to it: another process
// may have replaced or removed it before the lock was taken.
func own(f *os.File) error {
	if err := tryLock(f); err != nil {
		return err
	}
	mine, err := f.Stat()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	named, err := os.Stat(f.Name())
	if err != nil || !os.SameFile(mine, named) {
		return errTaken
	}
	return nil
}
