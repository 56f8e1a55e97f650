package cli

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// callerFlags say whose API key a command uses without --org.
type callerFlags struct{ url, key string }

const callerHelp = "With --org, it works on all runs of an org, as an administrator. Without it, it works on the runs of an API key,\n" +
	"from --key and --url, or OPENAI_API_KEY and OPENAI_BASE_URL."

func (f *callerFlags) add(c *cobra.Command) {
	urlFlag(c.Flags(), &f.url)
	c.Flags().StringVar(&f.key, "key", "", "API key that gives the budget (default: OPENAI_API_KEY)")
}

// urlFlag adds the address of the callers' API.
func urlFlag(flags *pflag.FlagSet, url *string) {
	usual := cmp.Or(os.Getenv("OPENAI_BASE_URL"), "http://127.0.0.1:8080/v1")
	flags.StringVar(url, "url", usual, "base URL of llmguard, with /v1")
}

// asCaller makes the request of the callers' own API, with an API key, if the command has one and no org is named.
func (o *operated) asCaller(c *cobra.Command, do func(*adminClient) error) error {
	for _, in := range o.op.Inputs() {
		if name := o.flagOf(in); in.In != "body" && in.Name != "org" && c.Flags().Changed(name) {
			return misused("--%s needs --org", name)
		}
	}
	if o.reason != "" {
		return misused("--reason needs --org: it goes into the audit of an administrator's change")
	}
	key := cmp.Or(o.caller.key, os.Getenv("OPENAI_API_KEY"))
	if key == "" {
		return errors.New("no API key: set OPENAI_API_KEY or --key, or --org to act as an administrator")
	}
	client, err := client(o.caFile, askTime)
	if err != nil {
		return err
	}
	op := *o.op
	op.Method, op.Path, _ = strings.Cut(o.command.Callers, " ")
	o.op = &op
	base, root := strings.TrimSuffix(strings.TrimRight(o.caller.url, "/"), "/v1"), "/v1"
	return do(&adminClient{do: client.Do, base: base, root: root, key: key, close: client.CloseIdleConnections})
}
