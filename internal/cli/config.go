package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
)

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Reload the configuration, export the orgs in force, print its JSON Schema"}
	c.AddCommand(&cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file", Args: cobra.NoArgs,
		Long: "Prints the JSON Schema of the configuration file, for editors: put it beside the file as llmguard.schema.json,\n" +
			"and begin the file with\n\n" +
			"  # yaml-language-server: $schema=llmguard.schema.json\n\n" +
			"`llmguard init` does both.",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(config.Schema())
			return err
		},
	})
	c.AddCommand(configReloadCommand(), configExportCommand())
	return c
}

func configReloadCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "reload", Short: "Have a running llmguard read its configuration file again", Args: cobra.NoArgs,
		Long: "Asks one process, as SIGHUP to it does: each process reads its own copy of the file. A file that is wrong changes nothing.\n" +
			"Needs an administrator's key (--admin-key or LLMGUARD_ADMIN_KEY).",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			if a.key == "" {
				return errors.New("needs a running llmguard and an administrator's key: --admin-key or LLMGUARD_ADMIN_KEY. " +
					"Without one, send the process a SIGHUP")
			}
			var done struct {
				Hash         string   `json:"hash"`
				Changed      []string `json:"changed"`
				NeedsRestart []string `json:"needs_restart"`
			}
			if err := a.ask(c.Context(), http.MethodPost, "/config/reload", nil, &done); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, done, func(w io.Writer) error {
				text := "reloaded; nothing differs from before"
				if len(done.Changed) > 0 {
					text = "reloaded; in force now: " + strings.Join(done.Changed, ", ")
				}
				if len(done.NeedsRestart) > 0 {
					text += "\nneeds a restart: " + strings.Join(done.NeedsRestart, ", ")
				}
				_, err := fmt.Fprintln(w, text)
				return err
			})
		})
	}
	f.add(c, listFormats...)
	return c
}
