package main

import (
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
)

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "What the configuration file may hold"}
	c.AddCommand(&cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file", Args: cobra.NoArgs,
		Long: "Prints the JSON Schema of the configuration file, for editors: put it beside the file as llmguard.schema.json,\n" +
			"and begin the file with\n\n  # yaml-language-server: $schema=llmguard.schema.json\n\n`llmguard init` does both.",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(config.Schema())
			return err
		},
	})
	return c
}
