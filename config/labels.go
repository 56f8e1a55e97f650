package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Label is a dimension of calls, such as their project: limits can count by it, and the ledger has
// it in every entry.
type Label struct {
	// Name is 1 to 32 of a-z, 0-9 and _, and none of org, group, user, key, ip.
	Name string `yaml:"name,required" kind:"label" unique:"list"`
	// From are the places of the value, in order: "header X-Project" (a header of the request, which
	// is not forwarded), "body user" or "body metadata.project" (a text in the JSON body), and key
	// (the value in the labels of the key, its user or its org). The first that has a value counts.
	// Default: only Default.
	From []string `yaml:"from" kind:"label source"`
	// Default is the value of calls that have none.
	Default string `yaml:"default"`
	// Missing is what happens to calls without a value. count: they count together under the empty
	// value. refuse: they get 400.
	Missing string `yaml:"missing" default:"count" enum:"count,refuse"`
	// MaxValues is how many different values an org may have in a UTC day. Calls with further values
	// count together under the value (other).
	MaxValues int64 `yaml:"max_values" default:"10000" range:"1..1M"`
	// Usage also keeps the sums of each day by value, for `llmguard usage --by label:NAME`. Then
	// MaxValues is at most 10000.
	Usage bool `yaml:"usage"`
}

// maxSummedValues bounds the values of a label with sums.
const maxSummedValues = 10_000

// fieldForm are the fields of bodies that can be labels.
var fieldForm = regexp.MustCompile(`^([a-z][a-z0-9_]{0,63}|metadata\.[A-Za-z0-9_-]{1,64})$`)

// chosen reports whether callers can choose the label's value.
func (l Label) chosen() bool {
	return slices.ContainsFunc(l.From, func(from string) bool { kind, _ := LabelSource(from); return kind != "key" })
}

// LabelSource splits an element of Label.From into its kind (header, body or key) and the name of
// the header or field.
func LabelSource(text string) (kind, name string) {
	kind, name, _ = strings.Cut(text, " ")
	return kind, strings.TrimSpace(name)
}

// checkLabels checks the definitions of labels.
func checkLabels(m *mistakes, cfg *Config) {
	for i, l := range cfg.Labels {
		at := element("labels", i)
		if l.Default != "" && !settings.ValidLabelValue(l.Default) {
			m.failAt(at+".default", "%s", badLabel(l.Default))
		}
		switch {
		case len(l.From) == 0 && l.Default == "":
			m.failAt(at, "has no value: add from, such as [header X-Project, body metadata.project, key], or default")
		case l.Missing == "refuse" && l.Default != "":
			m.failAt(at+".missing", "has no effect, because calls without a value have the default %s", quote(l.Default))
		case l.Usage && l.MaxValues > maxSummedValues:
			m.failAt(at+".max_values", "must be from 1 to %d with usage: true", maxSummedValues)
		}
	}
}

func labelNames(cfg *Config) []string {
	return idsOf(cfg.Labels, func(l *Label) string { return l.Name })
}

func badLabel(value string) string {
	return fmt.Sprintf("%s cannot be the value of a label: expected at most 128 letters, digits and "+
		". _ - : / @ + = ~ # %%", quote(value))
}

// checkLabelValues checks the values that an org, a user or a key has.
func checkLabelValues(m *mistakes, path string, values map[string]string, cfg *Config) {
	all := labelNames(cfg)
	for name, value := range values {
		at := join(path, name)
		i := slices.Index(all, name)
		switch {
		case i < 0:
			m.failAt(at, "there is no label %q in labels%s", name, didYouMean(name, all))
		case !slices.Contains(cfg.Labels[i].From, "key"):
			m.failAt(at, "has no effect, because key is not in the from of label %s", name)
		case !settings.ValidLabelValue(value):
			m.failAt(at, "%s", badLabel(value))
		}
	}
}

// checkSubject checks that the labels a limit counts by exist.
func checkSubject(m *mistakes, path string, l Limit, cfg *Config) {
	all := append([]string{"org", "group", "user", "key", "ip"}, labelNames(cfg)...)
	for _, part := range strings.Split(l.Subject, "+") {
		if !slices.Contains(all, part) {
			m.failAt(path, "there is no subject %q%s; the subjects are org, group, user, key, ip and the names in labels", part,
				didYouMean(part, all))
		}
	}
}
