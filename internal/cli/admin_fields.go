package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants/settings"
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

// settingsFlags returns the flags for the fields of a section that administrators can change.
func settingsFlags(section reflect.Type) *fields {
	s := &fields{}
	s.settings("", "", section)
	return s
}

// settings adds the flags of a section, whose flags and members begin with these prefixes.
func (s *fields) settings(flag, member string, section reflect.Type) {
	for _, f := range settings.RuntimeFields(section) {
		name, member, help := cmp.Or(f.Flag, flag+strings.ReplaceAll(f.Name, "_", "-")), member+f.Name, f.FlagHelp()
		switch as := f.MemberType(); {
		case name == "-":
		case settings.IsSection(f.Type):
			s.clearable = append(s.clearable, f.Name)
			s.settings(name+"-", member+".", f.Type)
		case as == reflect.TypeFor[time.Time]():
			s.when(name, member, help)
		case as.Kind() == reflect.Map:
			s.pairs(name, member, help)
		case as.Kind() == reflect.Slice:
			s.list(name, member, help)
		case as.Kind() == reflect.Bool:
			s.truth(name, member, help)
		case as.Kind() == reflect.String:
			s.text(name, member, help)
		default:
			s.number(name, member, help)
		}
	}
}

// factNames are the names of fields in tables.
var factNames = strings.NewReplacer("_", " ", ".", " ")

// settingsFacts returns fields of settings for facts. Whether something is disabled is its status.
func settingsFacts(lines []settings.Line) []string {
	var out []string
	for _, line := range lines {
		name, text := factNames.Replace(line.Name), escape.Text(line.Text)
		switch as := line.MemberType(); {
		case line.Flag == "-":
			continue
		case as.Kind() == reflect.Bool:
			text = yesNo(line.Text == "true")
		case as == reflect.TypeFor[time.Time]():
			name, text = name+" (UTC)", dayOf(line.Text, "")
		case as.Kind() == reflect.Int, as.Kind() == reflect.Int64:
			if n, err := strconv.ParseInt(line.Text, 10, 64); err == nil {
				text = whole(n)
			}
		}
		if text == "" || text == "0" {
			text = cmp.Or(line.Unset, text)
		}
		out = append(out, name, text)
	}
	return out
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

func orgFlag(c *cobra.Command, org *string) {
	c.Flags().StringVar(org, "org", "", "the org (required)")
	_ = c.MarkFlagRequired("org")
}
