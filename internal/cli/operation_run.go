package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

func (o *operated) gather(c *cobra.Command, given, args []string) error {
	if err := o.gatherPeriod(); err != nil {
		return err
	}
	maps.Copy(o.sent, o.command.Fixed)
	for i, arg := range args[:min(len(args), len(given))] {
		name, value := argumentName(o.op, arg), given[i]
		if strings.HasSuffix(arg, "...") {
			o.args = given[i:]
			if strings.Contains(arg, "=") {
				value = strings.Join(o.args, ",")
			}
		}
		o.put(name, value)
	}
	for _, in := range o.op.Inputs() {
		in.Flag = o.flagOf(in)
		if in.In == "body" || in.Kind == admin.Period || c.Flags().Lookup(in.Flag) == nil || o.values[in.Name] != "" {
			continue
		}
		value, err := o.flagValue(c, in)
		if err != nil {
			return err
		}
		o.values[in.Name] = value
	}
	return o.gatherBody(c)
}

// gatherPeriod reads the flags of a period. Without any and without a default, the operation has its own.
func (o *operated) gatherPeriod() error {
	for _, in := range o.op.Inputs() {
		if in.Kind != admin.Period || slices.Contains(o.command.Hide, in.Name) {
			continue
		}
		if !o.period.given() {
			o.period.from = in.Value
		}
		if !o.period.given() {
			return nil
		}
		from, to, err := o.period.bounds(time.Now())
		if err != nil {
			return err
		}
		o.values["from"] = from.UTC().Format(time.RFC3339)
		if o.period.to != "" { // otherwise with what happens meanwhile
			o.values["to"] = to.UTC().Format(time.RFC3339)
		}
		return nil
	}
	return nil
}

// flagValue returns what the flag of an input of the path or the query sends.
func (o *operated) flagValue(c *cobra.Command, in admin.Input) (string, error) {
	value := c.Flags().Lookup(in.Flag).Value.String()
	switch {
	case in.Kind == admin.Pairs:
		pairs, _ := c.Flags().GetStringArray(in.Flag)
		_, err := pairsOf(in.Flag, pairs)
		return strings.Join(pairs, "\n"), err
	case in.Kind == admin.Switch:
		return map[string]string{"true": in.Value}[value], nil
	case in.Kind == admin.Since:
		if d, _ := c.Flags().GetDuration(in.Flag); d > 0 {
			return time.Now().Add(-d).UTC().Format(time.RFC3339Nano), nil
		}
		return "", nil
	case in.Kind == admin.Count:
		if n, _ := strconv.Atoi(value); n < 1 || n > 1000 {
			return "", misused("--%s %s: expected 1 to 1000", in.Flag, value)
		}
	case in.Choices != nil && value != "" && !slices.Contains(in.Choices, value):
		return "", misused("--%s %s: expected one of %s", in.Flag, value, strings.Join(in.Choices, " "))
	case in.In == "path" && value == "" && o.command.All:
		return everyOrg, nil
	case in.In == "query" && in.Name == "org" && value == everyOrg: // as usage has it
		return "", nil
	}
	return value, nil
}

func (o *operated) gatherBody(c *cobra.Command) error {
	if o.op.Body == nil {
		return nil
	}
	for _, in := range o.op.Inputs() {
		if f := c.Flags().Lookup(in.Flag); in.Kind == admin.Money && f != nil {
			if err := emptied(c, in.Flag); err != nil {
				return err
			}
		}
	}
	if err := o.body.read(c, o.sent, o.resets()); err != nil {
		return err
	}
	count := 0
	for _, name := range o.command.OneOf {
		if o.sent[name] != nil {
			count++
		}
	}
	if o.command.OneOf != nil && count != 1 {
		return errors.New("use either --" + strings.Join(o.command.OneOf, " or --"))
	}
	return nil
}

func (o *operated) put(name, value string) {
	for _, in := range o.op.Inputs() {
		if in.Name == name && in.In == "body" {
			o.sent[name] = value
			return
		}
	}
	o.values[name] = value
}

func (o *operated) path() string {
	path := admin.Fill(o.op.Path, func(name string) string { return url.PathEscape(o.values[name]) })
	q := url.Values{}
	for _, in := range o.op.Inputs() {
		if value := o.values[in.Name]; in.In == "query" && value != "" {
			q[in.Name] = strings.Split(value, "\n") // several of Pairs
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

func (o *operated) work(c *cobra.Command, given, args []string) error {
	if err := o.gather(c, given, args); err != nil {
		return err
	}
	if yes := c.Flags().Lookup("yes"); o.command.Sure != "" && yes.Value.String() != "true" {
		return errors.New(o.fill(io.Discard, o.command.Sure, nil))
	}
	some := slices.DeleteFunc(slices.Clone(o.command.AnyOf), func(name string) bool {
		return o.values[name] == "" && o.sent[name] == nil
	})
	if len(some) == 0 && o.command.AnyOf != nil {
		return misused("--%s is required", strings.Join(o.command.AnyOf, " or --"))
	}
	for _, in := range o.op.Inputs() {
		if o.command.Callers != "" && in.In == "path" && o.values[in.Name] == "" && o.values["org"] != "" {
			return misused("--%s is required with --org", o.flagOf(in))
		}
	}
	run := o.run
	switch {
	case o.op.Local:
		run = o.local
	case o.command.Callers != "" && o.values["org"] == "":
		run = o.asCaller
	}
	return run(c, func(a *adminClient) error {
		if o.command.Orgs != "" {
			if done, err := o.eachOrg(c, a); done || err != nil {
				return err
			}
		}
		if o.special != nil {
			return o.special(c, o, a)
		}
		if o.args != nil && o.sent["subject"] == nil {
			return o.repeat(c, a)
		}
		return o.submit(c, a)
	})
}

func (o *operated) submit(c *cobra.Command, a *adminClient) error {
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	return o.show(c, answer)
}

// eachOrg finds the orgs of a command. It also does the work of one that lists something of several orgs.
func (o *operated) eachOrg(c *cobra.Command, a *adminClient) (done bool, err error) {
	orgs, err := a.pickOrgs(c.Context(), o.orgs, o.command.Orgs == "ledgers")
	if err != nil || o.command.Orgs == "one" && len(orgs) != 1 {
		return false, cmp.Or(err, fmt.Errorf("--org: choose one org: %s", strings.Join(orgs, ", ")))
	}
	if o.command.Orgs == "one" {
		o.values["org"] = orgs[0]
		return false, nil
	}
	line, _ := o.op.Listed()
	out := reflect.MakeSlice(reflect.SliceOf(line), 0, 0)
	for _, o.values["org"] = range orgs {
		if !o.op.Lines {
			answer, err := o.ask(c, a)
			if err != nil {
				return false, err
			}
			out = reflect.AppendSlice(out, reflect.ValueOf(answer).Elem().FieldByName("Data"))
			continue
		}
		err := a.lines(c.Context(), o.path(), func(text json.RawMessage) error {
			one := reflect.New(line)
			out = reflect.Append(out, one.Elem())
			return json.Unmarshal(text, out.Index(out.Len()-1).Addr().Interface())
		})
		if err != nil {
			return false, err
		}
	}
	return true, o.listed(c, out)
}

// repeat sends a request for each argument, and prints the answers as a list.
func (o *operated) repeat(c *cobra.Command, a *adminClient) error {
	out := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(o.op.Answer)), 0, len(o.args))
	last := ""
	for _, in := range o.op.Inputs() {
		if in.In == "path" {
			last = in.Name
		}
	}
	for _, id := range o.args {
		o.values[last] = id
		answer, err := o.ask(c, a)
		if err != nil {
			return err
		}
		out = reflect.Append(out, reflect.ValueOf(answer).Elem())
	}
	return o.list(c, out)
}

// ask sends the request and returns a pointer to its answer.
func (o *operated) ask(c *cobra.Command, a *adminClient) (any, error) {
	var body, answer any
	if o.op.Body != nil {
		body = o.sent
	}
	if o.op.Answer != nil {
		answer = reflect.New(reflect.TypeOf(o.op.Answer)).Interface()
	}
	return answer, a.ask(c.Context(), o.op.Method, o.path(), body, answer)
}

// say prints an answer, as a table with this text.
func (o *operated) say(c *cobra.Command, answer any, text string) error {
	return render(c.OutOrStdout(), o.output, answer, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

func (o *operated) show(c *cobra.Command, answer any) error {
	out := c.OutOrStdout()
	if answer == nil {
		_, err := fmt.Fprintln(out, o.fill(out, o.command.Done, nil))
		return err
	}
	v := reflect.ValueOf(answer).Elem()
	if _, list := o.op.Listed(); !list {
		return render(out, o.output, v.Interface(), func(w io.Writer) error { return o.one(w, v) })
	}
	data := v.FieldByName("Data")
	if more := v.FieldByName("HasMore"); more.IsValid() && more.Bool() {
		fmt.Fprintln(c.ErrOrStderr(), strings.ReplaceAll(o.command.More, "{n}", strconv.Itoa(data.Len())))
	}
	return o.listed(c, data)
}

// listed prints a list, or that it is empty.
func (o *operated) listed(c *cobra.Command, data reflect.Value) error {
	if data.Len() == 0 && o.command.None != "" {
		fmt.Fprintln(c.ErrOrStderr(), o.fill(io.Discard, o.command.None, nil))
	}
	return o.list(c, data)
}

func (o *operated) list(c *cobra.Command, data reflect.Value) error {
	return render(c.OutOrStdout(), o.output, data.Interface(), func(w io.Writer) error {
		if data.Len() == 0 && o.command.None != "" {
			return nil
		}
		if own := ownForm(data.Interface()); own != nil {
			return own(w)
		}
		return tableOf(w, data.Interface(), o.columns)
	})
}

// one prints a single answer: a line, a line of a table, or its facts.
func (o *operated) one(w io.Writer, v reflect.Value) error {
	if o.command.Done != "" {
		_, err := fmt.Fprintln(w, o.fill(w, o.command.Done, v.Interface()))
		return err
	}
	if own := ownForm(v.Interface()); own != nil {
		return own(w)
	}
	if err := secretOf(w, v); err != nil {
		return err
	}
	if o.op.Writes && len(columnsOf(v.Type())) > 0 && !hasFacts(v.Type()) {
		return tableOf(w, reflect.Append(reflect.MakeSlice(reflect.SliceOf(v.Type()), 0, 1), v).Interface(), nil)
	}
	return factsOf(w, v)
}

// ownForm returns how to print an answer for which neither a table nor facts are enough; nil: they are.
func ownForm(answer any) func(io.Writer) error {
	switch answer := answer.(type) {
	case []jobLine:
		return func(w io.Writer) error { return jobTable(w, answer) }
	case jobLine:
		return func(w io.Writer) error { return jobDetails(w, &answer) }
	case []admin.Limit:
		return func(w io.Writer) error { return limitTable(w, answer) }
	case admin.Limit:
		return func(w io.Writer) error { return limitTable(w, []admin.Limit{answer}) }
	case admin.Explanation:
		return func(w io.Writer) error { return explanationText(w, &answer) }
	case admin.ResetPlan:
		return func(w io.Writer) error { return resetTable(w, &answer) }
	case admin.Why:
		return func(w io.Writer) error { return whyText(w, &answer) }
	}
	return nil
}

// fill replaces the names of inputs and of members of an answer.
func (o *operated) fill(w io.Writer, text string, answer any) string {
	members := membersOf(w, answer)
	return admin.Fill(text, func(name string) string {
		if value, ok := members[name]; ok {
			return value
		}
		if value, ok := o.sent[name]; ok {
			return fmt.Sprint(value)
		}
		return o.values[name]
	})
}
