package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/figures"
)

// minuteOf formats a time that JSON has.
func minuteOf(text, none string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return none
	}
	return figures.Minute(at)
}

func newKeyCommand() *cobra.Command {
	var path, id string
	c := &cobra.Command{
		Use: "new", Short: "Create an API key and its hash for the configuration file", Args: cobra.NoArgs,
		Example: "  llmguard keys new --id alice-2 -c llmguard.yaml",
		Long: "Prints a new key, once, and the entry to add to a user in the configuration. Only its hash is stored. With --config the\n" +
			"hash uses the first pepper of the file.",
		RunE: func(c *cobra.Command, _ []string) error {
			pepper, err := firstPepper(path)
			if err != nil {
				return err
			}
			key := keys.New(keys.Live)
			fmt.Fprintf(c.OutOrStdout(),
				"key (shown only once): %s\n\nadd this to the user in the configuration:\n\n  keys:\n    - id: %s\n      hash: %s\n",
				key, id, keys.Hash(pepper, key))
			return nil
		},
	}
	c.Flags().StringVarP(&path, "config", "c", "", "configuration with the pepper to use")
	c.Flags().StringVar(&id, "id", "key-1", "id of the key in logs and the ledger")
	return c
}

func firstPepper(path string) (keys.Pepper, error) {
	if path == "" {
		return keys.Pepper{}, nil
	}
	cfg, err := config.LoadOperator(path)
	if err != nil || len(cfg.Auth.Peppers) == 0 {
		return keys.Pepper{}, err
	}
	p := cfg.Auth.Peppers[0]
	return keys.Pepper{ID: p.ID, Secret: p.Secret.Reveal()}, nil
}
