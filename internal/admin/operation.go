package admin

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Operation is everything about an operation of administrators but its handler. Its HTTP route, its part of the
// OpenAPI document, its commands in the CLI and its pages in the console come from it.
type Operation struct {
	Name    string // operationId, also used in the log
	Method  string
	Path    string // below prefix, in net/http's pattern syntax
	Summary string
	Audit   string // the action in the audit; empty: none of its own
	Writes  bool
	Local   bool // local only: whoever creates administrators has Redis access anyway
	Query   []parameter
	Body    any      // a value of the body's type; nil: none
	Answer  any      // of the response type, or of one line of it; nil: 204
	Lines   bool     // the response is a stream of JSON lines
	Kinds   []string // the response is a file of one of these media types, not JSON
	Status  int      // on success
	serve   handler
	inputs  []Input

	Commands []Command
	Pages    []Page
	Without  string // why there is no command
	NoPage   string // why a change has no page
}

// Command is how a command of the CLI calls an operation. Its flags are the inputs of the operation that are neither
// arguments nor set by Fixed.
type Command struct {
	// Use has the words of the command and its arguments, in capitals: an argument is the input of that name.
	Use     string
	Own     bool   // the CLI has a command of its own for the operation; the other fields are unused
	Short   string // empty: the operation's summary
	Long    string
	Example string            // without indentation and the program's name
	Fixed   map[string]any    // members of the body that the command sets
	Flags   map[string]string // names of flags, where an input's own does not fit
	Hide    []string          // inputs that are no flags
	Only    []string          // members of the body that are flags; nil: all
	Help    map[string]string // of inputs, where the input's own does not fit
	OneOf   []string          // inputs of which the command takes exactly one
	AnyOf   []string          // inputs of which the command takes at least one
	Must    []string          // inputs that the command requires and the API does not, or reason
	// Callers is the request of the callers' own API that the command makes without --org, with an API key: its method, a
	// space and its path; empty: none.
	Callers string
	All     bool // without the flag --org it is for all orgs
	// Orgs is how the command finds the org of its path: each for one list of the orgs of --org, by default all; ledgers
	// also with deleted orgs; one for the only org. Empty: --org is required.
	Orgs    string
	Columns []string // of the table, in order; nil: all that the answer has
	Sure    string   // the refusal without --yes, of what cannot be undone
	// Done is printed in place of the answer: {input} and {member} stand for inputs and members of the answer.
	Done string
	None string // printed when the list is empty
	More string // printed when the list was cut short; {n} is its length
}

// Page is how a page of the console asks for confirmation of an operation and calls it. What identifies the target
// comes from the page before; the rest is entered.
type Page struct {
	Name   string // in the console's path; empty: the operation's
	Title  string
	Text   string // what will happen; %s is the target
	Danger bool
	Fixed  map[string]any
	Ask    []Ask  // what is entered, besides the reason
	Must   bool   // the reason is required
	Done   string // as in Command
	Secret string // member of the answer that is shown once
}

// Path returns the name of the page in the console's path, such as cancel-job for cancelJob.
func (p *Page) Path(o *Operation) string {
	if p.Name != "" {
		return p.Name
	}
	return strings.ToLower(capital.ReplaceAllString(o.Name, "-$0"))
}

var capital = regexp.MustCompile(`[A-Z]`)

// Ask is an input on a page.
type Ask struct {
	Input, Label, Hint, Value string
	Optional                  bool
	Choices                   []string
}

// Input is a value that an operation takes.
type Input struct {
	Name     string // in the path, the query or the body
	In       string // path, query or body
	Flag     string // of the CLI
	Help     string
	Text     string // of a parameter of the query, as the API documents it; otherwise it is Help
	Kind     InputKind
	Required bool
	Setting  bool     // a field of an org, a user or a key, which null resets
	Value    string   // what the flag of a Switch sends; otherwise the default
	Choices  []string // of a Text; nil: any
}

// InputKind is the form of an Input.
type InputKind string

// The kinds of inputs.
const (
	Text   InputKind = "text"
	Money  InputKind = "money" // an amount of money or a count, as text
	Number InputKind = "number"
	Truth  InputKind = "truth"
	List   InputKind = "list"
	Pairs  InputKind = "pairs"  // name=value, repeated
	Until  InputKind = "until"  // a time to come
	Since  InputKind = "since"  // a duration before now
	Count  InputKind = "count"  // the most lines of a list, 1 to 1000
	Period InputKind = "period" // from and to; a default is the period's length
	Switch InputKind = "switch" // a flag without a value
)

// parameter is a query parameter. Its flag has its name and text, and takes a text, unless flag, help, kind and value
// differ.
type parameter struct {
	name, text string
	kind       InputKind
	flag, help string
	value      string
	choices    []string
}

var pathArgument = regexp.MustCompile(`\{(\w+)\}`)

// pathHelp describes what paths name.
var pathHelp = map[string]string{
	"org": "the org", "user": "the user", "key": "the API key", "limit": "the limit", "brake": "the brake's name",
	"provider": "the provider", "override": "the id of the override", "run": "the id of the run", "pool": "the pool",
	"target": "the id of the target", "admin": "the administrator", "request": "the id of the request", "job": "the id of the job",
	"batch": "the id of the batch", "letter": "the id of the delivery", "call": "the id of the call", "id": "the id",
}

// Inputs lists the inputs in the order of the path, the query and the body. The reason of a change is none: every
// operation that writes takes it.
func (o *Operation) Inputs() []Input { return o.inputs }

func (o *Operation) listInputs() []Input {
	var out []Input
	for _, m := range pathArgument.FindAllStringSubmatch(o.Path, -1) {
		out = append(out, Input{Name: m[1], In: "path", Flag: m[1], Help: pathHelp[m[1]], Kind: Text, Required: true})
	}
	for _, p := range o.Query {
		if p.name == reasonParameter.name {
			continue
		}
		in := Input{
			Name: p.name, In: "query", Flag: cmp.Or(p.flag, flagName(p.name)), Text: decapitalized(p.text),
			Kind: cmp.Or(p.kind, Text), Value: p.value, Choices: p.choices,
		}
		in.Help = cmp.Or(p.help, in.Text)
		if p.kind == Count {
			in.Help, _, _ = strings.Cut(in.Help, "; default")
		}
		out = append(out, in)
	}
	if o.Body != nil {
		out = append(out, bodyInputs(reflect.TypeOf(o.Body))...)
	}
	return out
}

func flagName(member string) string { return strings.ReplaceAll(member, "_", "-") }

func decapitalized(text string) string {
	if text == "" || strings.HasPrefix(text, "RFC") {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// bodyInputs lists the members of a body that have the tag help. The tags flag and input give another name of the
// flag, and another kind.
func bodyInputs(t reflect.Type) []Input {
	var out []Input
	for f := range t.Fields() {
		if section := settings.SectionOf(f.Type); section != nil {
			out = append(out, settingInputs("", "", section)...)
			continue
		}
		if f.Anonymous {
			out = append(out, bodyInputs(f.Type)...)
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		help, ok := f.Tag.Lookup("help")
		if !ok {
			continue
		}
		out = append(out, Input{
			Name: name, In: "body", Flag: cmp.Or(f.Tag.Get("flag"), flagName(name)), Help: help,
			Kind: cmp.Or(InputKind(f.Tag.Get("input")), kindOf(f.Type)), Required: !strings.Contains(opts, "omit"),
			Value: f.Tag.Get("default"),
		})
	}
	return out
}

// settingInputs lists the fields of a section that administrators can change; those of sections inside have dots in
// their names.
func settingInputs(flag, member string, section reflect.Type) []Input {
	var out []Input
	for _, f := range settings.RuntimeFields(section) {
		name := cmp.Or(f.Flag, flag+flagName(f.Name))
		switch {
		case name == "-":
		case settings.IsSection(f.Type):
			out = append(out, settingInputs(name+"-", member+f.Name+".", f.Type)...)
		default:
			out = append(out, Input{
				Name: member + f.Name, In: "body", Flag: name, Help: f.FlagHelp(), Kind: kindOf(f.MemberType()), Setting: true,
			})
		}
	}
	return out
}

func kindOf(t reflect.Type) InputKind {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return Until
	case t.Kind() == reflect.Bool:
		return Truth
	case t.Kind() == reflect.Slice:
		return List
	case t.Kind() == reflect.Map:
		return Pairs
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return Number
	}
	return Text
}

// Reasoned reports whether the operation takes a reason for the audit.
func (o *Operation) Reasoned() bool {
	return o.Writes && o.Name != "reloadConfig" && o.Name != "reloadAll"
}

// Listed reports whether the answer is a list, and returns the type of its lines.
func (o *Operation) Listed() (reflect.Type, bool) {
	t := reflect.TypeOf(o.Answer)
	if t == nil || t.Kind() != reflect.Struct {
		return t, false
	}
	if data, ok := t.FieldByName("Data"); ok && data.Type.Kind() == reflect.Slice {
		return data.Type.Elem(), true
	}
	return t, false
}

// Operations returns the table of operations, without handlers. Its callers share it, and do not change it.
func Operations() []Operation {
	operations.Do(func() {
		operations.table = new(Server).table()
		for i := range operations.table {
			operations.table[i].inputs = operations.table[i].listInputs()
		}
	})
	return operations.table
}

var operations struct {
	sync.Once
	table []Operation
}

// OperationOf returns the operation of a name.
func OperationOf(name string) *Operation {
	all := Operations()
	if i := slices.IndexFunc(all, func(o Operation) bool { return o.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Fill replaces {name} in a text by values.
func Fill(text string, values func(name string) string) string {
	return pathArgument.ReplaceAllStringFunc(text, func(m string) string { return values(m[1 : len(m)-1]) })
}

// ShellWord quotes a word of a printed command where a shell would change it.
func ShellWord(word string) string {
	special := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-+:=@%,", r))
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
