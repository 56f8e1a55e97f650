package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// streamLines prints a stream of JSON lines.
func streamLines(c *cobra.Command, o *operated, a *adminClient) error {
	w := bufio.NewWriterSize(c.OutOrStdout(), 1<<16)
	err := a.lines(c.Context(), o.path(), func(line json.RawMessage) error {
		_, err := w.Write(append(line, '\n'))
		return err
	})
	return errors.Join(err, w.Flush())
}

// intoFile writes a file that only its owner can read, completely or not at all.
func intoFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	var where *fs.PathError
	if errors.As(err, &where) { // the temporary name means nothing to the user
		return fmt.Errorf("cannot write %s: %w", name, where.Err)
	}
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is renamed when all went well
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(write(w), w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
