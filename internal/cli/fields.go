package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// fields are the flags of members of a request body. Only flags that were set are sent.
type fields struct {
	all   []admin.Input
	unset []string
}

func (s *fields) flag(c *cobra.Command, in admin.Input, help string) {
	s.all = append(s.all, in)
	f := c.Flags()
	switch in.Kind {
	case admin.Number:
		f.Int64(in.Flag, 0, help)
	case admin.Truth:
		f.Bool(in.Flag, false, help)
	case admin.List:
		f.StringSlice(in.Flag, nil, help)
	case admin.Pairs:
		f.StringArray(in.Flag, nil, help)
	default:
		if in.Value != "" {
			help += " (default " + in.Value + ")"
		}
		f.String(in.Flag, "", help)
	}
}

// resettable adds a flag that resets fields.
func (s *fields) resettable(c *cobra.Command) {
	c.Flags().StringSliceVar(&s.unset, "unset", nil, "fields to reset to the file's value or the default, by flag name")
}

func (s *fields) value(c *cobra.Command, in admin.Input) (any, error) {
	f := c.Flags()
	switch in.Kind {
	case admin.Number:
		return f.GetInt64(in.Flag)
	case admin.Truth:
		return f.GetBool(in.Flag)
	case admin.List:
		return f.GetStringSlice(in.Flag)
	case admin.Pairs:
		pairs, err := f.GetStringArray(in.Flag)
		if err != nil {
			return nil, err
		}
		return pairsOf(in.Flag, pairs)
	case admin.Until:
		at, err := until(f.Lookup(in.Flag).Value.String(), time.Now())
		if err != nil {
			return nil, misused("--%s %w", in.Flag, err)
		}
		return at, nil
	}
	return f.GetString(in.Flag)
}

// read adds the members whose flags were set to a body. With resets, a flag may be empty, and one at least is needed.
func (s *fields) read(c *cobra.Command, body map[string]any, resets bool) error {
	for _, in := range s.all {
		if !c.Flags().Changed(in.Flag) {
			continue
		}
		v, err := s.value(c, in)
		if err != nil {
			return err
		}
		if v == "" && !resets {
			return misused("--%s is empty; leave it out or give it a value", in.Flag)
		}
		setMember(body, in.Name, v)
	}
	for _, name := range s.unset {
		member, err := s.member(name)
		if err != nil {
			return err
		}
		setMember(body, member, nil)
	}
	if resets && len(body) == 0 {
		return errors.New("nothing to change: set at least one field, such as --" + s.all[0].Flag)
	}
	return nil
}

// member returns the member that --unset names: by its flag, or that of a section.
func (s *fields) member(name string) (string, error) {
	var flags, sections []string
	for _, in := range s.all {
		flags = append(flags, in.Flag)
		if section, _, ok := strings.Cut(in.Name, "."); ok && !slices.Contains(sections, section) {
			sections = append(sections, section)
		}
	}
	if slices.Contains(sections, name) {
		return name, nil
	}
	i := slices.IndexFunc(s.all, func(in admin.Input) bool { return in.Flag == name || in.Name == name })
	if i < 0 {
		return "", misused("--unset %s: expected any of %s", name, strings.Join(append(flags, sections...), ", "))
	}
	return s.all[i].Name, nil
}

// pairsText formats values by name.
func pairsText(values map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+"="+values[name])
	}
	return strings.Join(out, " ")
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
			text = minuteOf(line.Text, "")
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

// labelFilter is the --label flags of commands: values by name.
type labelFilter struct{ pairs []string }

func (f *labelFilter) add(c *cobra.Command, text string) {
	c.Flags().StringArrayVar(&f.pairs, "label", nil, text)
}

func (f *labelFilter) values() (map[string]string, error) { return pairsOf("label", f.pairs) }

// pairsOf parses the values of a flag for name=value.
func pairsOf(flag string, pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !ledger.ValidLabelName(name) || !ledger.ValidLabelValue(value) && value != ledger.OtherLabel {
			return nil, misused("--%s %s: expected name=value, such as project=mobile", flag, pair)
		}
		out[name] = value
	}
	return out, nil
}

// flagOf returns the flag that sets a field of a limit, the first one of a section, or "".
func (s *fields) flagOf(field string) string {
	for _, f := range s.all {
		if f.Name == field || strings.HasPrefix(f.Name, field+".") {
			return f.Flag
		}
	}
	return ""
}

// advice rewrites what errors about limits suggest from configuration syntax to flags.
var advice = strings.NewReplacer(
	"set metric: cost", "set --metric cost",
	"add window: 1h (sliding), calendar: month (fixed), or use bucket",
	"add --window 1h (sliding), --calendar month (fixed), or use --capacity",
	"add amount: '$5' and window: 1h, or amount and calendar, or bucket",
	"add --amount '$5' and --window 1h, or --amount and --calendar, or --capacity",
)

func (s *fields) inFlags(c *cobra.Command, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	if text := secondShape(c, r.message); text != "" {
		return &refusal{text, r.param, r.code, r.answer}
	}
	text := advice.Replace(r.message)
	// The message consists of the limit, the field (perhaps with a list index), and the
	// problem.
	if flag := s.flagOf(r.param); flag != "" {
		_, rest, _ := strings.Cut(text, ": "+r.param)
		_, what, ok := strings.Cut(rest, ": ")
		if ok {
			text = "--" + flag + ": " + what
		}
	}
	return &refusal{text, r.param, r.code, r.answer}
}

// twoShapes is the API's error about a limit with two shapes.
var twoShapes = regexp.MustCompile(`(window|calendar|bucket): the limit already has a (window|calendar|bucket); `)

// secondShape explains how to replace the shape of a limit, or returns "". The API's error names the
// two shapes in a fixed order, whichever of them the limit had.
func secondShape(c *cobra.Command, message string) string {
	m := twoShapes.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	flags := map[string]string{"window": "window", "calendar": "calendar", "bucket": "capacity"}
	given, old := m[1], m[2]
	if !c.Flags().Changed(flags[given]) {
		given, old = old, given
	}
	if c.Flags().Changed(flags[old]) {
		return "--" + flags[old] + " and --" + flags[given] + " cannot be combined: a limit has one shape, so set two limits"
	}
	unset := old
	if given == "bucket" {
		unset += ",amount"
	}
	return fmt.Sprintf("--%s: the limit already has a %s, and a limit has one shape. Add --unset %s to replace it, or "+
		"set a limit of another name (the shape of a limit in the configuration file changes only there)",
		flags[given], old, unset)
}

// quotedMoney is an amount of money in double quotes, in which a shell would replace its $.
var quotedMoney = regexp.MustCompile(`"(-?\$[^"]*)"`)

// forShell changes double quotes around amounts of money to single quotes.
func forShell(text string) string { return quotedMoney.ReplaceAllString(text, "'$1'") }

// remains matches what a shell leaves of an amount such as $5, $1.20, $0.25, $100.50 or $50/1h in
// double quotes, where it expands $5 to nothing and $0 to its own name.
var remains = regexp.MustCompile(`^-?($|/|\.|00|.*sh\.[0-9])`)

// emptied reports a flag for an amount of money that the shell has changed.
func emptied(c *cobra.Command, flags ...string) error {
	for _, name := range flags {
		f := c.Flags().Lookup(name)
		if f.Changed && remains.MatchString(f.Value.String()) {
			return misused("--%s: expected an amount, got %s. In double quotes a shell expands $5 to nothing; use single "+
				"quotes, as in '$5'", name, settings.Quote(f.Value.String()))
		}
	}
	return nil
}
