package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/tenants"
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
	c.AddCommand(configExportCommand())
	return c
}

func reloadConfig(c *cobra.Command, o *operated, a *adminClient) error {
	if all, _ := c.Flags().GetBool("all"); all {
		return reloadAll(c, o, a)
	}
	if a.key == "" {
		return errors.New("needs a running llmguard and an administrator's key: set --admin-key or LLMGUARD_ADMIN_KEY. " +
			"Without a key, send SIGHUP to the process")
	}
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	done := answer.(*admin.Reloaded)
	return o.say(c, done, reloadText(done))
}

func reloadText(done *admin.Reloaded) string {
	text := "reloaded; no changes"
	if len(done.Changed) > 0 {
		text = "reloaded; applied: " + strings.Join(done.Changed, ", ")
	}
	if len(done.NeedsRestart) > 0 {
		text += "\nneeds a restart: " + strings.Join(done.NeedsRestart, ", ")
	}
	return text
}

// reloadAll prints what a reload changed in each process, and fails if it failed in one.
func reloadAll(c *cobra.Command, o *operated, a *adminClient) error {
	var answer lists[tenants.ReloadedProcess]
	if err := a.ask(c.Context(), http.MethodPost, "/config/reload/all", nil, &answer); err != nil {
		return err
	}
	if len(answer.Data) == 0 {
		return errors.New("no process is running with this Redis and key prefix")
	}
	failed := 0
	var lines []string
	for _, p := range answer.Data {
		result := "not reloaded: " + p.Error
		if p.Result != nil {
			result = reloadText(p.Result)
		} else {
			failed++
		}
		lines = append(lines, p.Process+": "+result)
	}
	if err := o.say(c, answer.Data, strings.Join(lines, "\n")); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d processes did not reload", failed, len(answer.Data))
	}
	return nil
}
