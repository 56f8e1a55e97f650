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
	c := &cobra.Command{
		Use: "config",
		Example: "  llmguard config reload\n" +
			"  llmguard config export --org acme",
		Short: "Reload the configuration, export orgs, print the JSON Schema",
	}
	c.AddCommand(&cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file", Args: cobra.NoArgs,
		Example: "  llmguard config schema > llmguard.schema.json",
		Long: "Prints the JSON Schema of the configuration file, for editors: save it next to the file as llmguard.schema.json,\n" +
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
		Use: "reload", Short: "Make a running llmguard reload its configuration file", Args: cobra.NoArgs,
		Example: "  llmguard config reload",
		Long: "Reloads one process, as SIGHUP does. Each process reads its own copy of the file. If the file is invalid, nothing changes.\n" +
			"Needs an administrator's key (--admin-key or LLMGUARD_ADMIN_KEY).",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			if a.key == "" {
				return errors.New("needs a running llmguard and an administrator's key: set --admin-key or LLMGUARD_ADMIN_KEY. " +
					"Without a key, send SIGHUP to the process")
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
				text := "reloaded; no changes"
				if len(done.Changed) > 0 {
					text = "reloaded; applied: " + strings.Join(done.Changed, ", ")
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
