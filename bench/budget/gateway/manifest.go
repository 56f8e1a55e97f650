// Package gateway starts gateways as their manifests say, with the stores they need, and asks them what
// was spent.
package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/llmguard/llmguard/bench/budget/price"
)

// Manifest describes a gateway: all that the suite knows of it. Texts marked "template" are templates of
// package text/template over a Scope.
type Manifest struct {
	Name     string            `yaml:"name"`
	URL      string            `yaml:"url"`
	Status   string            `yaml:"status"` // "run", or "not run by us" until a run is recorded
	Sources  []string          `yaml:"sources"`
	Notes    string            `yaml:"notes"`
	Version  Version           `yaml:"version"`
	Program  Program           `yaml:"program"`
	Services []Service         `yaml:"services"`
	Files    map[string]string `yaml:"files"` // templates, by name in the run's directory
	Prepare  []Step            `yaml:"prepare"`
	Start    []Command         `yaml:"start"` // the gateway itself, then helpers such as workers
	Setup    []Step            `yaml:"setup"`
	Rotate   []Step            `yaml:"rotate"` // replaces a key
	Call     Call              `yaml:"call"`
	Spent    *Spent            `yaml:"spent"`
	Settles  Duration          `yaml:"settles_within"`  // documented time until a call is booked
	Recovers Duration          `yaml:"recovers_within"` // documented time until a dead process's calls are
	Budgets  string            `yaml:"budgets"`         // "none": it has no budgets
	Cannot   map[string]string `yaml:"cannot"`          // attacks it cannot do, with the reason
	Reasons  map[string]string `yaml:"reasons"`         // documented reasons of figures, by attack
}

// Duration is a text such as 10s in YAML.
type Duration time.Duration

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(text []byte) error {
	parsed, err := time.ParseDuration(strings.Trim(strings.TrimSpace(string(text)), `"'`))
	*d = Duration(parsed)
	return err
}

// Version says how the version is found: a fixed text, or a command and an expression with a group.
type Version struct {
	Text    string   `yaml:"text"`
	Command []string `yaml:"command"` // templates
	Match   string   `yaml:"match"`
}

// Program says where {{.Bin}} is, unless -bin names it: one of its fields.
type Program struct {
	Build []string `yaml:"build"` // a command that writes {{.Bin}}, run in the repository's root
	NPM   string   `yaml:"npm"`   // a package with its version
	Main  string   `yaml:"main"`  // of the package, below node_modules
	Path  string   `yaml:"path"`  // a program on the PATH
	Self  bool     `yaml:"self"`  // the suite's own binary, for the fixtures
}

// Service is a store that a gateway needs. The gateway reaches it through a TCP proxy of the suite, which
// can cut it off or slow it down. The first service is the store of the outage attacks.
type Service struct {
	Name    string            `yaml:"name"`
	Command []string          `yaml:"command"` // template; {{.Port}} is the port to listen on
	Env     map[string]string `yaml:"env"`
}

// Command is a process of the gateway.
type Command struct {
	Command []string          `yaml:"command"` // template
	Env     map[string]string `yaml:"env"`     // template
	Ready   string            `yaml:"ready"`   // URL that answers 200 when it is ready; template
	Kill    []string          `yaml:"kill"`    // a command in place of SIGKILL, for containers; template
	Term    []string          `yaml:"term"`    // in place of SIGTERM
	Helper  bool              `yaml:"helper"`  // started once, not once for each replica, and not killed
}

// Step is a command or a request that prepares a gateway.
type Step struct {
	For     string            `yaml:"for"`     // user or key: repeated for each; default: once
	Command []string          `yaml:"command"` // templates
	Request *Request          `yaml:"request"`
	Save    map[string]string `yaml:"save"` // by name: an expression with a group (command), a path (request)
}

// Request is a request to a gateway.
type Request struct {
	Method  string            `yaml:"method"`
	URL     string            `yaml:"url"`     // template
	Headers map[string]string `yaml:"headers"` // templates
	Body    string            `yaml:"body"`    // template
}

// Call says how callers reach a gateway and read its refusals.
type Call struct {
	Base        string            `yaml:"base"`    // URL that ends in /v1; template
	Headers     map[string]string `yaml:"headers"` // templates
	Refused     []int             `yaml:"refused"`
	Unavailable []int             `yaml:"unavailable"`
	ModelPrefix string            `yaml:"model_prefix"` // before the model's name, such as openai/
}

// Spent says how to read what a user has spent: the sum of the numbers at a path.
type Spent struct {
	For     string  `yaml:"for"` // user or key
	Request Request `yaml:"request"`
	Value   string  `yaml:"value"`
	PerUSD  int64   `yaml:"per_usd"` // how many of the number's units are one USD
}

// Load reads and checks a manifest.
func Load(path string) (*Manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if want := strings.TrimSuffix(filepath.Base(path), ".yaml"); m.Name != want {
		return nil, fmt.Errorf("%s: name is %q, and the file's name says %q", path, m.Name, want)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	switch {
	case m.Status != "run" && m.Status != "not run by us":
		return errors.New(`status is neither "run" nor "not run by us"`)
	case len(m.Start) == 0 || m.Call.Base == "":
		return errors.New("start and call.base are required")
	case m.Budgets != "none" && len(m.Call.Refused) == 0:
		return errors.New("call.refused is required: the status codes of a call over the budget")
	case m.Spent != nil && (m.Spent.PerUSD == 0 || m.Spent.Value == ""):
		return errors.New("spent needs value and per_usd")
	}
	if m.Settles == 0 {
		m.Settles = Duration(2 * time.Second)
	}
	if m.Recovers == 0 {
		m.Recovers = m.Settles
	}
	return nil
}

// Scope is what the templates of a manifest see.
type Scope struct {
	Bin      string
	Dir      string // of this run
	Mock     string // URL of the provider, without /v1
	Port     int    // of this process; in services, to listen on
	Admin    int    // a second port of this process
	Replica  int
	Short    bool
	Attack   string
	Budget   string            // of each user, in USD
	Nano     price.Nano        // the same in nano-USD
	Tokens   price.Nano        // the same in output tokens of gpt-4o, for gateways that count only tokens
	Quota    price.Nano        // the same in units of which 500,000 are one USD
	Window   int               // of the budget, in seconds
	Parallel int               // calls of a user in parallel; 0: no limit
	Models   []ModelScope      // what the mock sells
	Service  map[string]string // host:port by name
	Users    []*User
	User     *User // of a step for each user or key
	Key      *Key  // of a step for each key
	Vars     map[string]string
}

// ModelScope is a model's price in USD per token, image and second.
type ModelScope struct{ Name, Input, Cached, Output, Image, Second string }

// User is a caller with a budget.
type User struct {
	Name string
	Keys []*Key
	Vars map[string]string // saved by steps
}

// Key is one of a user's keys. Secret is a proposal; steps can save another one in Vars.
type Key struct {
	ID     string
	Secret string
	Vars   map[string]string
}

func render(text string, scope Scope) (string, error) {
	t, err := template.New("manifest").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := t.Execute(&out, scope); err != nil {
		return "", err
	}
	return out.String(), nil
}

func renderAll(texts []string, scope Scope) ([]string, error) {
	out := make([]string, len(texts))
	for i, text := range texts {
		var err error
		out[i], err = render(text, scope)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Try renders all templates of a manifest with an invented deployment, so that mistakes are found without
// the gateway.
func (m *Manifest) Try() error {
	key := &Key{ID: "user0-key0", Secret: "sk-0", Vars: map[string]string{"random": "0"}}
	user := &User{Name: "user0", Keys: []*Key{key}, Vars: map[string]string{}}
	scope := Scope{
		Bin: "bin", Dir: "dir", Mock: "http://127.0.0.1:1", Port: 1, Admin: 2, Attack: "burst",
		Budget: usd(price.USD), Nano: price.USD, Tokens: 100000, Quota: 500000,
		Window: 60, Parallel: 3,
		Models: models(), Service: map[string]string{}, Users: []*User{user}, User: user, Key: key, Vars: map[string]string{},
	}
	var texts []string
	for _, s := range m.Services {
		scope.Service[s.Name] = "127.0.0.1:1"
		texts = append(texts, s.Command...)
	}
	for name, text := range m.Files {
		texts = append(texts, name, text)
	}
	for _, step := range slices.Concat(m.Prepare, m.Setup, m.Rotate) {
		texts = append(texts, step.Command...)
		if step.Request != nil {
			texts = append(texts, step.Request.texts()...)
		}
		vars := map[string]map[string]string{"key": key.Vars, "user": user.Vars, "": scope.Vars}[step.For]
		for name := range step.Save {
			vars[name] = "saved"
		}
	}
	for _, c := range m.Start {
		texts = append(slices.Concat(texts, c.Command, c.Kill, c.Term, slices.Collect(maps.Values(c.Env))), c.Ready)
	}
	texts = append(append(texts, slices.Collect(maps.Values(m.Call.Headers))...), m.Call.Base)
	if m.Spent != nil {
		texts = append(texts, m.Spent.Request.texts()...)
	}
	_, err := renderAll(texts, scope)
	return err
}

func (r *Request) texts() []string {
	return append(slices.Collect(maps.Values(r.Headers)), r.URL, r.Body)
}
