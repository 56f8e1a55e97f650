package cli

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// named maps flags and arguments to the API lists that complete them; %s is the org.
var named = map[string]string{
	"org": "/orgs", "user": "/orgs/%s/users", "key": "/orgs/%s/keys",
	"limit": "/orgs/%s/limits",
}

var argument = regexp.MustCompile(`^\S+ \[?(ORG|USER|KEY|LIMIT)\]?$`)

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
	m := argument.FindStringSubmatch(c.Use)
	if m == nil || c.ValidArgsFunction != nil || c.Name() == "create" {
		return
	}
	ids := completeIDs(strings.ToLower(m[1]))
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
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
		if kind != "org" && org == "" {
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
		var l struct {
			Data []struct {
				ID   string `json:"id"`
				Name string `json:"name"`
			} `json:"data"`
		}
		path := strings.Replace(named[kind], "/%s", pathOf(org), 1)
		if err := a.ask(c.Context(), http.MethodGet, path, nil, &l); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, one := range l.Data {
			id := one.ID
			if kind == "limit" {
				id = one.Name
			}
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
