package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

func limitsGetCommand() *cobra.Command {
	var f adminFlags
	var s subject
	c := &cobra.Command{
		Use: "get [LIMIT]", Short: "Show limits, their usage and overrides",
		Example: "  llmguard limits get --org acme\n" +
			"  llmguard limits get daily --org acme --user alice",
		Args: cobra.MaximumNArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.Limit `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, pathOf("orgs", s.org, "limits")+s.query(), nil, &l); err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
				all := l.Data
				l.Data = slices.DeleteFunc(slices.Clone(all), func(v admin.Limit) bool { return v.Name != name })
				if len(l.Data) == 0 {
					return noSuchLimit(&s, name, limitNamesOf(all), a.ownLimits(c.Context(), &s, name))
				}
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), noLimits(&s, a.ownLimits(c.Context(), &s, "")))
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return limitTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	s.add(c, "show the limits of this user, with the user's usage", "show the limits of this key, with its usage")
	c.Flags().StringVar(&s.ip, "ip", "", "client address, for limits per address")
	s.labels.add(c, "value of a label, as name=value, for limits per label (repeat for several)")
	return c
}

func limitNamesOf(list []admin.Limit) []string {
	var out []string
	for _, l := range list {
		out = append(out, l.Name)
	}
	return out
}

// ownLimits returns the users of the org with limits of their own: all, or those of one name. They
// are part of a hint, so it returns none if a user was named already or they cannot be read.
func (a *adminClient) ownLimits(ctx context.Context, s *subject, name string) []admin.DeclaredUser {
	if s.query() != "" {
		return nil
	}
	var d admin.Declaration
	if err := a.ask(ctx, http.MethodGet, pathOf("orgs", s.org, "declaration"), nil, &d); err != nil {
		return nil
	}
	return slices.DeleteFunc(d.Users, func(u admin.DeclaredUser) bool {
		return !slices.ContainsFunc(u.Limits, func(l admin.DeclaredLimit) bool { return name == "" || l.Name == name })
	})
}

// mostNamed is how many users a hint names.
const mostNamed = 5

// whoHas names users and shows the command for the first.
func whoHas(s *subject, name string, users []admin.DeclaredUser) string {
	var ids []string
	for _, u := range users[:min(len(users), mostNamed)] {
		ids = append(ids, u.ID)
	}
	if more := len(users) - len(ids); more > 0 {
		ids = append(ids, fmt.Sprintf("and %d more", more))
	}
	command := "llmguard limits get "
	if name != "" {
		command += name + " "
	}
	return fmt.Sprintf("%s. Show one with `%s--org %s --user %s`", strings.Join(ids, ", "), command, s.org, users[0].ID)
}

// noSuchLimit is the error for a limit that does not apply to the subject.
func noSuchLimit(s *subject, name string, others []string, users []admin.DeclaredUser) error {
	text := fmt.Sprintf("limit %s not found. Limits: %s", name, strings.Join(others, ", "))
	if len(others) == 0 {
		text = fmt.Sprintf("limit %s not found; no limit applies here", name)
	}
	if len(users) > 0 {
		text += fmt.Sprintf(". Users with their own limit %s: %s", name, whoHas(s, name, users))
	}
	return errors.New(text)
}

// noLimits explains an empty list.
func noLimits(s *subject, users []admin.DeclaredUser) string {
	if len(users) > 0 {
		return fmt.Sprintf("org %s has no limits that apply to every call. Users with their own limits: %s", s.org,
			whoHas(s, "", users))
	}
	return "no limits; set one with `llmguard limits set`"
}
