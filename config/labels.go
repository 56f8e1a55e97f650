package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Label is a dimension of calls, such as their project.
type Label struct {
	// Name is 1 to 32 of a-z, 0-9 and _, and none of org, group, user, key, ip.
	Name string `yaml:"name,required" kind:"label" unique:"list"`
	// From are the places of the value, in order: "header X-Project", "body user" or "body metadata.project" (a text
	// in the JSON body), and key (the labels of the key, its user or its org).
	From []string `yaml:"from" kind:"label source"`
	// Default is the value of calls without one.
	Default string `yaml:"default"`
	// Missing is what happens to calls without a value. count: they count together under the empty value. refuse:
	// they get 400.
	Missing string `yaml:"missing" default:"count" enum:"count,refuse"`
	// MaxValues is how many values an org may have in a UTC day. Further values count together as (other).
	MaxValues int64 `yaml:"max_values" default:"10000" range:"1..1M"`
	// Usage also keeps daily sums by value, for `llmguard usage --by label:NAME`. Then MaxValues is at most 10000.
	Usage bool `yaml:"usage"`

	// Agents is set for the labels of the word agents. An invalid value of these counts as absent.
	Agents bool `yaml:"-"`
}

// AgentHeader is a header by which a coding agent names its session, the agent that calls, or the
// agent that started this one.
type AgentHeader struct{ Label, Program, Header string }

// AgentHeaders returns the sources of the labels that the word agents defines. Those of a label are
// in the order in which they count. A subagent of OpenCode is a session of its own, which names the
// session that started it; its calls count for that session.
func AgentHeaders() []AgentHeader {
	return []AgentHeader{
		{"session", "Claude Code", wire.HeaderClaudeSession},
		{"session", "Codex", "Session-Id"},
		{"session", "OpenCode", "X-Parent-Session-Id"},
		{"session", "OpenCode", "X-Session-Id"},
		{"agent", "Claude Code", "X-Claude-Code-Agent-Id"},
		{"agent", "Codex", "Thread-Id"},
		{"agent", "OpenCode", "X-Session-Id"},
		{"parent_agent", "Claude Code", "X-Claude-Code-Parent-Agent-Id"},
		{"parent_agent", "Codex", "X-Codex-Parent-Thread-Id"},
		{"parent_agent", "OpenCode", "X-Parent-Session-Id"},
	}
}

// agentLabels returns the labels that the word agents defines.
func agentLabels() []Label {
	var out []Label
	for _, h := range AgentHeaders() {
		at := slices.IndexFunc(out, func(l Label) bool { return l.Name == h.Label })
		if at < 0 {
			at = len(out)
			out = append(out, Label{Name: h.Label, Agents: true})
			setDefaults(reflect.ValueOf(&out[at]).Elem())
		}
		out[at].From = append(out[at].From, "header "+h.Header)
	}
	return out
}

// labels decodes the list of labels, or one element of it. The word agents, in place of either,
// becomes a label without a name, which finishLabels replaces.
func (d *document) labels(path string, n ast.Node, v reflect.Value, f field) {
	_, isWord := n.(*ast.StringNode)
	isList := v.Kind() == reflect.Slice
	switch {
	case isWord:
		var word string
		d.scalar(path, n, reflect.ValueOf(&word).Elem(), f)
		if isList {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			v = v.Index(0)
		}
		v.Set(reflect.ValueOf(Label{Agents: true}))
	case isList:
		d.list(path, n, v, f)
	default:
		d.section(path, n, v)
	}
}

// checkAgentsWord accepts the word agents.
func checkAgentsWord(text string) error {
	if text == "agents" {
		return nil
	}
	hint := settings.DidYouMean(text, []string{"agents"})
	return fmt.Errorf("expected agents, or labels such as {name: project, from: [header X-Project]}, got %s%s",
		quote(text), hint)
}

// finishLabels replaces the word agents: by its first label, so that the labels after it keep their
// index, and by the others at the end.
func finishLabels(m *mistakes, cfg *Config) {
	at := slices.IndexFunc(cfg.Labels, func(l Label) bool { return l.Agents })
	if at < 0 {
		return
	}
	ofAgents := agentLabels()
	for i := range cfg.Labels {
		l := &cfg.Labels[i]
		switch {
		case l.Agents:
			*l = ofAgents[0]
		case slices.ContainsFunc(ofAgents, func(other Label) bool { return other.Name == l.Name }):
			m.failAt(element("labels", i)+".name", "agents, on line %d, already defines the label %s; choose another name, "+
				"or replace agents by the labels that you need", m.markAt(element("labels", at)).line, l.Name)
			l.Name = "" // not to be reported twice
		}
	}
	cfg.Labels = append(cfg.Labels, ofAgents[1:]...)
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
			m.failAt(at, "there is no label %q in labels%s", name, settings.Hint(name, all))
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
			hint := settings.DidYouMean(part, all)
			m.failAt(path, "there is no subject %q%s; the subjects are org, group, user, key, ip and the names in labels. "+
				"Add a label there to count by it", part, hint)
		}
	}
}
