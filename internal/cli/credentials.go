package cli

import "github.com/spf13/cobra"

// setCredential reads the secret from standard input, because an argument would be visible to other users.
func setCredential(c *cobra.Command, o *operated, a *adminClient) error {
	secret, err := secretInput(c.InOrStdin(), "")
	if err != nil {
		return err
	}
	o.sent["secret"] = secret
	return o.submit(c, a)
}
