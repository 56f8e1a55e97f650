package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/keys"
)

func keysCommand() *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "Make API keys"}
	c.AddCommand(newKeyCommand())
	return c
}

func newKeyCommand() *cobra.Command {
	var path, id string
	c := &cobra.Command{
		Use: "new", Short: "Make an API key and the hash that goes into the configuration", Args: cobra.NoArgs,
		Long: "Prints a new key, once, and the entry to put under a user's keys. The key itself is stored nowhere.\n" +
			"With --config the hash is bound to the file's first pepper.",
		RunE: func(c *cobra.Command, _ []string) error {
			pepper, err := firstPepper(path)
			if err != nil {
				return err
			}
			key := keys.New(keys.Live)
			fmt.Fprintf(c.OutOrStdout(), "key (shown only now): %s\n\nunder the user in the configuration:\n\n  keys:\n    - id: %s\n      hash: %s\n",
				key, id, keys.Hash(pepper, key))
			return nil
		},
	}
	c.Flags().StringVarP(&path, "config", "c", "", "a configuration whose pepper to use")
	c.Flags().StringVar(&id, "id", "key-1", "the key's id, for logs and the ledger")
	return c
}

func firstPepper(path string) (keys.Pepper, error) {
	if path == "" {
		return keys.Pepper{}, nil
	}
	cfg, err := config.Load(path)
	if err != nil || len(cfg.Auth.Peppers) == 0 {
		return keys.Pepper{}, err
	}
	p := cfg.Auth.Peppers[0]
	return keys.Pepper{ID: p.ID, Secret: p.Secret.Reveal()}, nil
}
