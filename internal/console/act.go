package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// actionOf returns the page of the table of operations with a name.
func actionOf(name string) (*admin.Operation, *admin.Page) {
	for _, op := range admin.Operations() {
		for i := range op.Pages {
			if op.Pages[i].Path(&op) == name {
				return &op, &op.Pages[i]
			}
		}
	}
	return nil, nil
}

// input is a field of the confirmation page.
type input struct {
	Name, Label, Hint, Value string
	Optional                 bool
	Choices                  []string // empty: free text
}

// done is the result of an action: a line, and a secret that is shown once.
type done struct{ Text, Secret string }

type confirmView struct {
	Name, Title, Text, Problem, Back string
	Danger                           bool
	Fields                           map[string]string
	Inputs                           []input
}

// act asks for confirmation of an action, or performs it.
func (c *Console) act(v *visit) error {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, 64<<10)
	op, page := actionOf(v.r.PathValue("action"))
	if op == nil {
		return errNotFound
	}
	if !v.genuine() {
		v.fail(http.StatusForbidden, "This form is invalid or has expired. Go back and try again.")
		return nil
	}
	a := &action{v, op, page, map[string]admin.Input{}}
	for _, in := range op.Inputs() {
		a.inputs[in.Name] = in
	}
	view := a.confirmation()
	if v.r.PostFormValue("confirm") != "yes" {
		return v.show("confirm", page.Title, view)
	}
	result, err := a.do()
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		view.Problem = refused.text
		v.w.WriteHeader(refused.status)
		return v.show("confirm", page.Title, view)
	case err != nil:
		return err
	}
	c.incidents.forget()
	v.session.tell(result)
	http.Redirect(v.w, v.r, view.Back, http.StatusSeeOther)
	return nil
}

// action is one visit to a page that calls an operation.
type action struct {
	*visit
	op     *admin.Operation
	page   *admin.Page
	inputs map[string]admin.Input
}

// input returns an input of the operation; a setting of a tenant is a text.
func (a *action) input(name string) admin.Input {
	if in, ok := a.inputs[name]; ok {
		return in
	}
	return admin.Input{Name: name, In: "body", Flag: name, Kind: admin.Text}
}

// target lists the inputs that come from the page before: those that are not asked.
func (a *action) target() []admin.Input {
	return slices.DeleteFunc(slices.Clone(a.op.Inputs()), func(in admin.Input) bool {
		_, fixed := a.page.Fixed[in.Name]
		return fixed || slices.ContainsFunc(a.page.Ask, func(q admin.Ask) bool { return q.Input == in.Name })
	})
}

func (a *action) confirmation() confirmView {
	fields := map[string]string{}
	var said []string
	for _, in := range a.target() {
		text := a.field(in.Flag)
		if _, given := a.r.PostForm[in.Flag]; given || in.In == "path" { //nolint:forbidigo // the field, not http.PostForm
			fields[in.Flag] = text
		}
		if text != "" {
			said = append(said, text)
		}
	}
	view := confirmView{
		Name: a.page.Path(a.op), Title: a.page.Title, Text: fmt.Sprintf(a.page.Text, strings.Join(said, "/")),
		Danger: a.page.Danger, Fields: fields, Back: nextOf(a.field("back")),
	}
	for _, q := range a.page.Ask {
		view.Inputs = append(view.Inputs, input{a.input(q.Input).Flag, q.Label, q.Hint, q.Value, q.Optional, q.Choices})
	}
	view.Inputs = append(view.Inputs,
		input{Name: "reason", Label: "Reason", Hint: "recorded in the audit", Optional: !a.page.Must})
	for i := range view.Inputs {
		if given, ok := a.r.PostForm[view.Inputs[i].Name]; ok { //nolint:forbidigo // the field, not http.PostForm
			view.Inputs[i].Value = given[0]
		}
	}
	return view
}

// do calls the operation.
func (a *action) do() (done, error) {
	body := maps.Clone(a.page.Fixed)
	if body == nil {
		body = map[string]any{}
	}
	for _, in := range a.target() {
		if text := a.field(in.Flag); in.In == "body" && text != "" {
			body[in.Name] = text
		}
	}
	for _, q := range a.page.Ask {
		value, err := a.asked(q)
		if err != nil {
			return done{}, err
		}
		if value != "" {
			body[q.Input] = value
		}
	}
	path := admin.Fill(a.op.Path, func(name string) string { return url.PathEscape(a.field(name)) })
	if why := a.field("reason"); why != "" {
		path += "?" + url.Values{"reason": {why}}.Encode()
	}
	var sent any
	if a.op.Body != nil {
		sent = body
	}
	var answer map[string]any
	var into any
	if a.op.Answer != nil {
		into = &answer
	}
	err := a.change(a.op.Method, path, sent, into)
	text := admin.Fill(a.page.Done, func(name string) string {
		for _, values := range []map[string]any{body, answer} {
			switch value := values[name].(type) {
			case nil:
			case time.Time:
				return figures.Minute(value)
			default:
				return shortMoney(fmt.Sprint(value))
			}
		}
		return a.field(name)
	})
	secret, _ := answer[a.page.Secret].(string)
	return done{Text: text, Secret: secret}, err
}

// shortMoney shortens an amount with nine decimals, as the API writes money, and leaves other texts as they are.
func shortMoney(text string) string {
	_, decimals, _ := strings.Cut(text, ".")
	n, err := pricing.ParseUSD(text)
	if err != nil || len(decimals) != 9 {
		return text
	}
	return strings.TrimPrefix(figures.USD(n), "$")
}

// asked returns the value of an input that was entered; "" leaves it out.
func (a *action) asked(q admin.Ask) (any, error) {
	in := a.input(q.Input)
	text := a.field(in.Flag)
	switch {
	case in.Kind == admin.Truth: // the second choice
		return text == q.Choices[1], nil
	case in.Kind == admin.Until:
		return a.until(text, q.Choices)
	case text == "" && a.op.Method == http.MethodPatch:
		return nil, nil
	}
	return text, nil
}

// until reads an end in UTC, or how long from now if there are choices, such as 8 hours.
func (a *action) until(text string, choices []string) (any, error) {
	if choices == nil {
		at, err := time.Parse(untilFormat, text)
		if err != nil {
			return nil, &refusal{http.StatusBadRequest, "Until must be a time in UTC such as 2026-12-01 18:00."}
		}
		return at, nil
	}
	var n int
	var unit string
	if _, err := fmt.Sscan(text, &n, &unit); err != nil || !slices.Contains(choices, text) {
		return nil, &refusal{http.StatusBadRequest, "Choose a duration."}
	}
	d := time.Duration(n) * time.Hour
	if strings.HasPrefix(unit, "day") {
		d *= 24
	}
	return a.o.Now().Add(d).UTC().Truncate(time.Second), nil
}

// refusal is an action that was not done, with the reason.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func (v *visit) field(name string) string { return v.r.PostFormValue(name) }

// change sends a change to the API.
func (v *visit) change(method, path string, body, out any) error {
	if status, text := v.ask(v.r.Context(), method, path, body, out); status >= 300 {
		return &refusal{status, problem(text, "Nothing was changed.")}
	}
	return nil
}

// overrides returns the current overrides of an org; if user is not empty, only those that
// affect the user.
func (v *visit) overrides(org, user string) []admin.Override {
	all, _ := list[admin.Override](v, "/orgs/"+url.PathEscape(org)+"/overrides", "")
	return slices.DeleteFunc(all, func(o admin.Override) bool {
		return !o.Active || user != "" && o.Only != "" && o.Only != user
	})
}

// tell keeps the result of an action for the next page.
func (one *session) tell(d done) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.told = &d
}

// hear returns the result of an action, once.
func (one *session) hear() *done {
	one.mu.Lock()
	defer one.mu.Unlock()
	d := one.told
	one.told = nil
	return d
}
