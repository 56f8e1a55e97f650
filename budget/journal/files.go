package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// suffix marks the files of a directory that are journals.
const suffix = ".journal"

// errTaken says that another process has the file.
var errTaken = errors.New("journal: another process has this file")

// adopt takes every file of the directory that no living process has. The first
// becomes this process's own; the records of the others move into it. Without
// any it makes one.
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
	for _, f := range others { // their records are on disk here now
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if len(j.live) > 0 {
		j.opts.Log.Warn("the journal has records of an earlier process", "dir", j.dir, "records", len(j.live))
	}
	return nil
}

// read takes the records of a file that a process left behind.
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
		j.opts.Log.Warn("the journal ends in a record that was not written to its end, or is damaged: skipped",
			"file", f.Name(), "bytes", skipped)
	}
	return nil
}

// fresh makes a file under the first free name.
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

// create makes a file that must not be there, and locks it.
func create(name string) (*os.File, error) {
	flags := os.O_RDWR | os.O_CREATE
	if filepath.Ext(name) == suffix {
		flags |= os.O_EXCL
	} else {
		flags |= os.O_TRUNC // left by a process that died over it
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

// take opens a file and locks it; errTaken when another process has it.
func take(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errTaken // and emptied it meanwhile
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

// own locks a file until it is closed, and sees that its name still stands for
// it: another process may have replaced or removed it before the lock.
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
