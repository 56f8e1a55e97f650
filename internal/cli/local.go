package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// local runs a command on the Redis of the configuration, whatever the environment says.
func (f *adminFlags) local(c *cobra.Command, do func(*adminClient) error) error {
	const there = "`%s` needs the configuration file and direct access to Redis, and does not work over the network; run it with " +
		"--config"
	if named, _ := c.Flags().GetString("context"); named != "" || f.url+f.key != "" {
		return fmt.Errorf(there, c.CommandPath())
	}
	if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s not found. "+there, f.path, c.CommandPath())
	}
	a, err := f.openLocal(c.Context())
	if err != nil {
		return err
	}
	defer a.close()
	a.notes = c.ErrOrStderr()
	return do(a)
}
