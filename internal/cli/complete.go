package cli

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// named maps flags and arguments to the API lists that complete them, and the member of a line; %s is the org.
var named = map[string]struct{ path, member string }{
	"org": {"/orgs", "id"}, "user": {"/orgs/%s/users", "id"}, "key": {"/orgs/%s/keys", "id"},
	"limit": {"/orgs/%s/limits", "name"}, "run": {"/orgs/%s/runs", "id"}, "override": {"/orgs/%s/overrides", "id"},
	"brake": {"/brakes?org=%s", "brake"}, "request": {"/limit_requests", "id"}, "admin": {"/admins", "id"},
	"pool": {"/queue", "pool"}, "job": {"/jobs", "id"}, "batch": {"/batches", "id"}, "target": {"/webhooks", "id"},
	"letter": {"/webhooks/dead", "id"},
}

// completeFlags adds shell completion of ids, from a running llmguard or its Redis.
func completeFlags(c *cobra.Command) {
	if c.Flags().Lookup("admin-url") == nil {
		return
	}
	for kind := range named {
		if c.Flags().Lookup(kind) != nil {
			_ = c.RegisterFlagCompletionFunc(kind, completeIDs(kind))
		}
	}
	words := strings.Fields(c.Use)
	if len(words) != 2 || c.ValidArgsFunction != nil || c.Name() == "create" {
		return
	}
	kind := strings.ToLower(strings.Trim(words[1], "[]."))
	if operated := c.Annotations[operationInput]; operated != "" {
		kind = operated
	}
	if _, ok := named[kind]; !ok {
		return
	}
	ids, several := completeIDs(kind), strings.HasSuffix(words[1], "...")
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ids(c, args, begin)
	}
}

// completeIDs lists the ids of a kind. Completion cannot show errors, so an error yields an
// empty list.
func completeIDs(kind string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		text := func(flag string) string {
			if f := c.Flags().Lookup(flag); f != nil {
				return f.Value.String()
			}
			return ""
		}
		org := text("org")
		of := named[kind]
		if strings.Contains(of.path, "%s") && org == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		f := adminFlags{
			path: text("config"), url: text("admin-url"), key: text("admin-key"), caFile: text("ca-file"),
			command: c,
		}
		a, err := f.open(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer a.close()
		// Without an answer there is nothing to suggest.
		lines, _ := list[map[string]any](c.Context(), a, strings.Replace(of.path, "%s", url.PathEscape(org), 1))
		var out []string
		for _, one := range lines {
			if id, _ := one[of.member].(string); id != "" && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
