package cli

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// setCredential reads the secret from standard input, because an argument would be visible to other users.
func setCredential(c *cobra.Command, o *operated, a *adminClient) error {
	raw, err := io.ReadAll(io.LimitReader(c.InOrStdin(), 64<<10))
	if err != nil {
		return err
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" {
		return errors.New("standard input is empty: pass the secret on it (an argument would be visible " +
			"to other users)")
	}
	o.sent["secret"] = secret
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	return o.show(c, answer)
}
