package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Filter selects ledger entries. The zero value selects all. ParseFilter describes its language.
type Filter struct{ terms []term }

// term is one condition: a name, an operator and a value. Without a name it searches the text.
type term struct {
	name, op, value string
	dim             Dimension // if rolled, a run or a label
	number          int64     // value of numbers
	labelled        bool      // of runs: calls that name their run in a label of this name count, too
}

// texts are what filters compare as text, in addition to dimensions.
var texts = map[string]func(*Entry) string{
	"id": func(e *Entry) string { return e.ID }, "job": func(e *Entry) string { return e.JobID },
	"batch": func(e *Entry) string { return e.Batch },
	"kind":  func(e *Entry) string { return e.Kind }, "outcome": func(e *Entry) string { return e.Outcome },
	"class": func(e *Entry) string { return e.Class }, "ip": func(e *Entry) string { return e.IP },
	"estimated": func(e *Entry) string { return strconv.FormatBool(e.Estimated) },
}

// numbers are what filters compare by size.
var numbers = map[string]func(*Entry) int64{
	"cost":   func(e *Entry) int64 { return int64(e.Cost) },
	"status": func(e *Entry) int64 { return int64(e.Status) },
	"tokens": func(e *Entry) int64 { return e.Usage.Input + e.Usage.Output },
}

// MaxFilterTerms is how many conditions a filter can have.
const MaxFilterTerms = 16

// FilterNames lists what a filter can name, without labels.
func FilterNames() []string {
	out := slices.AppendSeq(slices.AppendSeq(Names(), maps.Keys(texts)), maps.Keys(numbers))
	slices.Sort(out)
	return out
}

// ParseFilter parses conditions that all must be met, separated by spaces:
//
//	user=alice run=nightly-7 model=gpt-4* status>=400 cost>0.50 01m7x425asv4hapb0hzey6k903
//
// A name is a dimension, the name of a label (as project or label:project), or one of id, job, kind,
// outcome, class, ip, estimated, cost (in dollars), tokens and status. Text is compared by = and !=,
// where * matches any characters; numbers by =, !=, <, <=, > and >= as well. A value with spaces is
// quoted. An empty value means none. A word without an operator is searched in ids, users, keys,
// models, runs and values of labels. Names that are not built in must be known labels.
//
// The value of run is the id or the path of a run, which has the calls of the runs inside it, or a
// value of the label run, if there is such a label.
func ParseFilter(text string, label func(name string) bool) (Filter, error) {
	words, err := split(text)
	if err != nil {
		return Filter{}, err
	}
	if len(words) > MaxFilterTerms {
		return Filter{}, fmt.Errorf("%d conditions, at most %d", len(words), MaxFilterTerms)
	}
	var f Filter
	for _, w := range words {
		t, err := parseTerm(w, label)
		if err != nil {
			return Filter{}, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

// split splits text at spaces outside of quotes, and removes the quotes.
func split(text string) ([]string, error) {
	var out []string
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range text {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case !quoted && (r == ' ' || r == '\t' || r == '\n' || r == '\r'):
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quoted {
		return nil, errors.New(`a " is not closed`)
	}
	if begun {
		out = append(out, word.String())
	}
	return out, nil
}

func parseTerm(word string, label func(string) bool) (term, error) {
	at := strings.IndexAny(word, "=!<>")
	if at < 0 {
		return term{value: strings.ToLower(word)}, nil
	}
	t := term{name: word[:at], op: word[at : at+1], value: word[at+1:]}
	if strings.HasPrefix(t.value, "=") && t.op != "=" {
		t.op, t.value = t.op+"=", t.value[1:]
	}
	if t.op == "!" {
		return t, fmt.Errorf("%.80q: expected =, !=, <, <=, > or >=", word)
	}
	if numbers[t.name] != nil {
		var err error
		t.number, err = numberOf(t.name, t.value)
		return t, err
	}
	if t.op != "=" && t.op != "!=" {
		return t, fmt.Errorf("%.80q: only cost, tokens and status can be compared by size", word)
	}
	if texts[t.name] != nil {
		return t, nil
	}
	var err error
	t.dim, err = DimensionOf(t.name)
	if err == nil {
		t.labelled = t.name == Run && label(t.name)
		return t, nil
	}
	if !ValidLabelName(t.name) || !label(t.name) {
		return t, fmt.Errorf("%.40q is neither a label nor one of %s", t.name, strings.Join(FilterNames(), ", "))
	}
	t.dim, err = DimensionOf(LabelPrefix + t.name)
	return t, err
}

func numberOf(name, text string) (int64, error) {
	if name == "cost" {
		digits, negative := strings.CutPrefix(text, "-")
		n, err := pricing.ParseUSD(digits)
		if err != nil {
			return 0, fmt.Errorf("cost %.40q: expected dollars, such as 0.50", text)
		}
		if negative {
			n = -n
		}
		return int64(n), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %.40q: expected a whole number", name, text)
	}
	return n, nil
}

// OfUser selects the calls of a user, whose id is a ledger.ValidID.
func OfUser(id string) Filter {
	return Filter{[]term{{name: "user", op: "=", value: id, dim: By("user")[0]}}}
}

// OfRun selects the calls of a run and of the runs inside it, by its id.
func OfRun(id string) Filter {
	return Filter{[]term{{name: Run, op: "=", value: id, dim: Dimension{Name: Run}}}}
}

// Empty reports whether the filter selects all entries.
func (f Filter) Empty() bool { return len(f.terms) == 0 }

// Fits reports whether the entry meets all conditions.
func (f Filter) Fits(e *Entry) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool { return !t.fits(e) })
}

func (t *term) fits(e *Entry) bool {
	switch {
	case t.name == "":
		return found(t.value, &e.Call)
	case numbers[t.name] != nil:
		return sized(t.op, cmp.Compare(numbers[t.name](e), t.number))
	case t.name == "id": // with the corrections of the call
		return (t.op == "=") == (providers.Match(t.value, e.ID) || e.Corrects != "" && providers.Match(t.value, e.Corrects))
	case texts[t.name] != nil:
		return (t.op == "=") == providers.Match(t.value, texts[t.name](e))
	}
	return t.of(&e.Call)
}

// of reports whether a call has the value of a dimension.
func (t *term) of(c *Call) bool {
	if t.dim.Name == Run {
		return (t.op == "=") == t.ofRun(c)
	}
	return (t.op == "=") == providers.Match(t.value, t.dim.Of(c))
}

func (t *term) ofRun(c *Call) bool {
	named := ""
	if t.labelled {
		named = c.Labels.Get(Run)
	}
	if named != "" || c.Run == "" {
		if providers.Match(t.value, named) {
			return true
		}
	}
	for run := c.Run; run != ""; run = run.Parent() {
		if providers.Match(t.value, string(run)) || providers.Match(t.value, run.ID()) {
			return true
		}
	}
	return false
}

func sized(op string, sign int) bool {
	switch op {
	case "=":
		return sign == 0
	case "!=":
		return sign != 0
	case "<":
		return sign < 0
	case "<=":
		return sign <= 0
	case ">":
		return sign > 0
	}
	return sign >= 0
}

// found reports whether what names the call contains the text.
func found(lower string, c *Call) bool {
	texts := []string{c.ID, c.User, c.Key, c.Model, c.JobID, c.Batch, string(c.Run)}
	for _, value := range c.Labels.All() {
		texts = append(texts, value)
	}
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), lower) })
}

// rolled reports whether the sums of days and hours are enough to apply the filter.
func (f Filter) rolled() bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool { return !t.dim.rolled })
}

// only reports whether all conditions are on this dimension.
func (f Filter) only(d Dimension) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool { return t.dim.Name != d.Name })
}

// takes is Fits for a sum; all conditions must be on dimensions.
func (f Filter) takes(c *Call) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool { return !t.of(c) })
}

// user returns the only user whose calls the filter can select, or "".
func (f Filter) user() string {
	for _, t := range f.terms {
		if t.name == "user" && t.op == "=" && ValidID(t.value) {
			return t.value
		}
	}
	return ""
}

// ID returns the id of the only call that the filter can select; "" if there is none.
func (f Filter) ID() string {
	for _, t := range f.terms {
		if _, ok := wire.CallTime(t.value); ok && (t.name == "" || t.name == "id" && t.op == "=") {
			return t.value
		}
	}
	return ""
}

// FilterWords splits a filter into its conditions; each is a filter of its own. It returns none for a
// text that is no filter.
func FilterWords(text string) []string {
	words, err := split(text)
	if err != nil {
		return nil
	}
	for i, w := range words {
		if strings.ContainsAny(w, " \t\r\n") {
			words[i] = `"` + w + `"`
		}
	}
	return words
}

// FilterWord returns the condition that a dimension has a value.
func FilterWord(dimension, value string) string {
	name := strings.TrimPrefix(dimension, LabelPrefix)
	if slices.Contains(FilterNames(), name) {
		name = dimension // a label may have the name of something built in
	}
	return Condition(name, value)
}

// Condition returns the condition that a name of a filter has a value.
func Condition(name, value string) string {
	word := name + "=" + strings.ReplaceAll(value, `"`, "*")
	if strings.ContainsAny(word, " \t\r\n") {
		word = `"` + word + `"`
	}
	return word
}
