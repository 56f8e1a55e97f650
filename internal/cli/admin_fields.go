package cli

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
)

// fields are flags that become members of a request body; only flags that were set are sent.
type fields struct {
	all       []flagField
	unset     []string
	clearable []string // members without a flag of this name that --unset takes too
}

// flagField is one of these flags. Value parses it.
type flagField struct {
	flag, member, text string
	add                func(*cobra.Command)
	value              func(*cobra.Command) (any, error)
}

func (s *fields) text(flag, member, text string) {
	s.all = append(s.all, flagField{
		flag, member, text,
		func(c *cobra.Command) { c.Flags().String(flag, "", text) },
		func(c *cobra.Command) (any, error) { return c.Flags().GetString(flag) },
	})
}

func (s *fields) list(flag, member, text string) {
	s.all = append(s.all, flagField{
		flag, member, text,
		func(c *cobra.Command) { c.Flags().StringSlice(flag, nil, text) },
		func(c *cobra.Command) (any, error) { return c.Flags().GetStringSlice(flag) },
	})
}

func (s *fields) number(flag, member, text string) {
	s.all = append(s.all, flagField{
		flag, member, text,
		func(c *cobra.Command) { c.Flags().Int64(flag, 0, text) },
		func(c *cobra.Command) (any, error) { return c.Flags().GetInt64(flag) },
	})
}

// pairs adds a flag for name=value, which may be repeated.
func (s *fields) pairs(flag, member, text string) {
	var f labelFilter
	s.all = append(s.all, flagField{
		flag, member, text,
		func(c *cobra.Command) { f.add(c, text) },
		func(*cobra.Command) (any, error) { return f.values() },
	})
}

// pairsText formats values by name.
func pairsText(values map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+"="+values[name])
	}
	return strings.Join(out, " ")
}

func (s *fields) truth(flag, member, text string) {
	s.all = append(s.all, flagField{
		flag, member, text,
		func(c *cobra.Command) { c.Flags().Bool(flag, false, text) },
		func(c *cobra.Command) (any, error) { return c.Flags().GetBool(flag) },
	})
}

// when adds a flag for a point in time: a date, an RFC 3339 time, or a duration from now.
func (s *fields) when(flag, member, text string) {
	s.all = append(s.all, flagField{
		flag, member, text,
		func(c *cobra.Command) { c.Flags().String(flag, "", text) },
		func(c *cobra.Command) (any, error) {
			text, err := c.Flags().GetString(flag)
			if err != nil {
				return nil, err
			}
			at, err := until(text, time.Now())
			if err != nil {
				return nil, misused("--%s %w", flag, err)
			}
			return at, nil
		},
	})
}

// until parses an end time: a date, a time, a duration from now, a time of day, "tonight" or
// "tomorrow". Dates without a zone use the zone of now.
func until(text string, now time.Time) (time.Time, error) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	var at time.Time
	switch text {
	case "tonight", "midnight":
		at = midnight.AddDate(0, 0, 1)
	case "tomorrow":
		at = midnight.AddDate(0, 0, 2)
	default:
		t, ok := untilTime(text, now, midnight)
		if !ok {
			return t, fmt.Errorf("%s: expected tonight, tomorrow, a time of day (18:00), a duration from now (4h, 7d), a "+
				"date (2026-12-01: until it begins) or a time (2026-12-01T18:00:00+01:00)", text)
		}
		at = t
	}
	if !at.After(now) {
		return at, fmt.Errorf("%s: this time is in the past", text)
	}
	return at, nil
}

// untilTime parses a duration from now, a time of day, a date or a time.
func untilTime(text string, now, midnight time.Time) (at time.Time, ok bool) {
	if d, ok := ledger.Ago(text); ok {
		return now.Add(d), true
	}
	if t, err := time.ParseInLocation("15:04", text, now.Location()); err == nil {
		at = midnight.Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute)
		if !at.After(now) {
			at = at.AddDate(0, 0, 1)
		}
		return at, true
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t, true
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// add registers the flags on a command; unset adds a flag that clears fields.
func (s *fields) add(c *cobra.Command, unset bool) {
	for _, f := range s.all {
		f.add(c)
	}
	if unset {
		c.Flags().StringSliceVar(&s.unset, "unset", nil,
			"fields to reset to the file's value or the default, by flag name")
	}
}

// body adds the flags that were set to a request body.
func (s *fields) body(c *cobra.Command, body map[string]any) (map[string]any, error) {
	given := len(body) > 0
	for _, f := range s.all {
		if !c.Flags().Changed(f.flag) {
			continue
		}
		v, err := f.value(c)
		if err != nil {
			return nil, err
		}
		setMember(body, f.member, v)
		given = true
	}
	for _, name := range s.unset {
		if slices.Contains(s.clearable, name) {
			body[name], given = nil, true
			continue
		}
		i := slices.IndexFunc(s.all, func(f flagField) bool { return f.flag == name || f.member == name })
		if i < 0 {
			var known []string
			for _, f := range s.all {
				known = append(known, f.flag)
			}
			known = append(known, s.clearable...)
			return nil, misused("--unset %s: expected any of %s", name, strings.Join(known, ", "))
		}
		setMember(body, s.all[i].member, nil)
		given = true
	}
	if !given {
		return nil, errors.New("nothing to change: set at least one field, such as --" + s.all[0].flag)
	}
	return body, nil
}

// setMember sets a member of a body, or with a dot a member of a member.
func setMember(body map[string]any, member string, v any) {
	outer, inner, nested := strings.Cut(member, ".")
	if !nested {
		body[member] = v
		return
	}
	if body[outer] == nil {
		body[outer] = map[string]any{}
	}
	body[outer].(map[string]any)[inner] = v
}

// exampleOf returns an example command line for an org, a user, a key or a credential.
func exampleOf(kind, verb string) string {
	return "  llmguard " + map[string]string{
		"org": "orgs " + verb + " acme", "user": "users " + verb + " alice --org acme",
		"key": "keys " + verb + " alice-1 --org acme", "provider": "orgs credentials " + verb + " openai --org acme",
	}[kind]
}

// switchCommand enables or disables an org, a user or a key.
func switchCommand(kind, verb string, disabled bool) *cobra.Command {
	var f adminFlags
	var org string
	var cancelJobs bool
	use := map[string]string{"org": verb + " ORG", "user": verb + " USER", "key": verb + " KEY"}[kind]
	text := map[string]string{
		"org": "all its keys get 401", "user": "all their keys get 401",
		"key": "requests with it get 401",
	}[kind]
	short := "Disable a" + map[string]string{"org": "n"}[kind] + " " + kind + " (" + text + ")"
	if !disabled {
		short = "Enable a disabled " + kind
	}
	c := &cobra.Command{Use: use, Short: short, Example: exampleOf(kind, verb), Args: cobra.ExactArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		path := pathOf("orgs", args[0])
		if kind != "org" {
			path = pathOf("orgs", org, kind+"s", args[0])
		}
		return f.run(c, func(a *adminClient) error {
			body := map[string]any{"disabled": disabled}
			if cancelJobs {
				body["cancel_jobs"] = true
			}
			if err := a.ask(c.Context(), http.MethodPatch, path, body, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s %s is %s\n", kind, args[0], onOff(disabled))
			return nil
		})
	}
	f.add(c)
	f.why(c)
	if kind != "org" {
		orgFlag(c, &org)
	}
	if kind == "key" && disabled {
		c.Flags().BoolVar(&cancelJobs, "cancel-jobs", false,
			"also cancel the unfinished jobs and batches of the key")
	}
	return c
}

func orgFlag(c *cobra.Command, org *string) {
	c.Flags().StringVar(org, "org", "", "the org (required)")
	_ = c.MarkFlagRequired("org")
}

// deleteCommand deletes a resource once --yes is given.
func deleteCommand(kind, short string, remove func(*cobra.Command, *adminClient, []string) error) *cobra.Command {
	var f adminFlags
	var yes bool
	c := &cobra.Command{
		Use: "delete " + strings.ToUpper(kind), Short: short, Example: exampleOf(kind, "delete") + " --yes",
		Args: cobra.ExactArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if !yes {
			return fmt.Errorf("this permanently removes %s %s. Confirm with --yes, or disable it instead", kind, args[0])
		}
		return f.run(c, func(a *adminClient) error { return remove(c, a, args) })
	}
	f.add(c)
	f.why(c)
	c.Flags().BoolVar(&yes, "yes", false, "confirm")
	return c
}
