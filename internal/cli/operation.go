package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

// operated is a run of a command that the table of operations describes.
type operated struct {
	adminFlags
	op      *admin.Operation
	command admin.Command
	body    fields            // flags for members of the body
	caller  callerFlags       // of a command with Callers
	special worker            // nil: one request with one answer
	values  map[string]string // inputs of the path and the query, by name
	sent    map[string]any    // the body
	args    []string          // those after the first, of a command that repeats
}

// worker does the work of a command.
type worker func(*cobra.Command, *operated, *adminClient) error

// specialOf returns the worker of a command whose work is not one request with one answer, with its flags; nil: it is.
func specialOf(c *cobra.Command, words string) worker {
	switch words {
	case "audit":
		return auditWorker(c)
	case "queue":
		return queueWorker(c)
	case "jobs replay":
		c.Flags().String("org", "", "only these orgs, separated by commas; default: all")
	}
	return map[string]worker{
		"batches cancel": cancelBatches, "config reload": reloadConfig, "jobs cancel": cancelJobs, "jobs replay": replayJobs,
		"jobs watch": watchJob, "orgs create": createOrg, "orgs credentials set": setCredential, "queue resume": resumePool, "resume": resumeSpending, "stop": stopSpending,
	}[words]
}

// addOperations adds the commands of the table of operations to their groups, which it creates if the group has only
// such commands.
func addOperations(root *cobra.Command) {
	for _, op := range admin.Operations() {
		for _, d := range op.Commands {
			if d.Own {
				continue
			}
			words, _ := wordsOf(d.Use)
			to := root
			for _, word := range words[:len(words)-1] {
				to = subcommand(to, word)
			}
			to.AddCommand(operationCommand(&op, d))
		}
	}
}

// subcommand returns a command of another, creating an empty one.
func subcommand(of *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(of.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
	if i >= 0 {
		return of.Commands()[i]
	}
	g := groups[strings.TrimPrefix(of.CommandPath()+" "+name, "llmguard ")]
	c := &cobra.Command{
		Use: name, Short: g.short, Long: strings.TrimPrefix(g.long+"\n\n"+adminHelp, "\n\n"),
		Example: "  llmguard " + strings.ReplaceAll(g.example, "\n", "\n  llmguard "),
	}
	of.AddCommand(c)
	return c
}

// groups describe the commands that only have subcommands of the table.
var groups = map[string]struct{ short, long, example string }{
	"admins": {
		"Create and revoke administrator keys",
		"Administrator keys grant access to the admin API only. Create and change them on a machine that has the configuration file and\n" +
			"reaches its Redis: a leaked key cannot create others over the network. Only `admins list` also works on a running llmguard.",
		"admins create ops -c llmguard.yaml\nadmins create dashboard --read-only --expires 90d",
	},
	"batches": {
		"List, show and cancel batches of any org", "For operators. Callers use `llmguard batch` for their own batches.",
		"batches list --open\nbatches show batch_5ycmz7yqwdzcprxg5kzvw2xkfe",
	},
	"brakes": {
		"List brakes that fired, release them, and stop a run by hand",
		"A brake stops the calls of one run, user, key or other subject that runs wild: see docs/agents.md. A release\n" +
			"and a stop take effect in all processes within a second, and restarts keep them.",
		"brakes list\nbrakes release --org acme --brake wild-run user=carol run=abc --reason 'long migration'",
	},
	"jobs": {
		"List, show, cancel, replay and follow jobs of any org", "For operators. Callers use GET /v1/jobs for their own jobs.",
		"jobs list --status failed --since 24h\njobs get job_puyzj01m7x3vb350ckcmq65wwmswwsz",
	},
	"limits requests": {
		"List, approve and deny callers' requests for more of a limit",
		"With raise_requests in the configuration, a caller whose call a limit refused can request more of it, with\n" +
			"POST /v1/limit_requests. Approving creates an override, which expires automatically.",
		"limits requests list --status pending\n" +
			"limits requests approve lreq_01m84kynm3jp5p1nr8mr0yampe --amount '$10'\n" +
			"limits requests deny lreq_01m84kynm3jp5p1nr8mr0yampe --reason 'use the batch API'",
	},
	"orgs": {
		"List, create and change orgs",
		"Works on orgs in the configuration file and in Redis. Values set here override the file, field by field; --unset restores\n" +
			"the value of the file.",
		"orgs list\norgs create acme --name 'Acme Inc' --models 'gpt-*'\n" +
			"orgs update acme --over-limit refuse --reason 'no queueing wanted'",
	},
	"keys": {
		"List, create, change and rotate API keys",
		"A key is shown once, when it is created. `keys new` creates one for the configuration file. The other commands work on\n" +
			"keys in the file and in Redis.",
		"keys create --org acme --user alice --models 'gpt-4o*' --expires 2027-01-31\n" +
			"keys rotate alice-1 --org acme --overlap 24h\nkeys disable alice-1 --org acme --reason leaked",
	},
	"users": {
		"List, create and change users of an org", "",
		"users list --org acme\nusers create alice --org acme --name 'Alice A.'\n" +
			"users disable alice --org acme --reason 'left'",
	},
	"orgs credentials": {
		"Set and remove an org's own credentials at providers",
		"The org's calls then use its own provider account. The secret is read from standard input and encrypted with\n" +
			"queue.seal_keys; it cannot be read back.",
		"orgs credentials set openai --org acme < acme-openai-key.txt\norgs credentials list --org acme",
	},
	"runs": {
		"List the budgets of runs, add to them and end them",
		"A run is an amount that a key gave away: see `llmguard keys child`.\n\n" + callerHelp,
		"runs list\nruns top-up run_k3v5hd7q2mzx4abc --add '$5'\nruns list --org acme",
	},
	"webhooks": {
		"List webhook targets and failed deliveries, re-enable and replay them",
		"For operators. See docs/webhooks.md for when a delivery counts as failed.",
		"webhooks targets\nwebhooks dead --org acme",
	},
}

// wordsOf splits a Use into the words of the command and its arguments.
func wordsOf(use string) (words, args []string) {
	all := strings.Fields(use)
	i := slices.IndexFunc(all, func(w string) bool { return strings.ToLower(w) != w })
	if i < 0 {
		return all, nil
	}
	return all[:i], all[i:]
}

// operationInput is the annotation of a command with the input that its argument gives.
const operationInput = "llmguard_input"

// argumentName returns the name of the input that an argument such as ORG, KEY..., [LIMIT] or NAME=VALUE... gives.
func argumentName(op *admin.Operation, arg string) string {
	name := strings.ToLower(strings.Trim(arg, "[]."))
	if strings.Contains(name, "=") {
		name = "subject"
	}
	for _, in := range op.Inputs() {
		if in.Name == name {
			return name
		}
	}
	for _, in := range slices.Backward(op.Inputs()) { // ID is the last of the path
		if in.In == "path" && name == "id" {
			return in.Name
		}
	}
	return "id" // of what is created
}

func operationCommand(op *admin.Operation, d admin.Command) *cobra.Command {
	o := &operated{op: op, command: d, values: map[string]string{}, sent: map[string]any{}}
	words, args := wordsOf(d.Use)
	c := &cobra.Command{
		Use: strings.Join(append(words[len(words)-1:], args...), " "), Short: cmp.Or(d.Short, op.Summary),
		Example: "  llmguard " + strings.ReplaceAll(d.Example, "\n", "\n  llmguard "), Args: argumentCheck(args),
	}
	if d.Long != "" {
		c.Long = d.Long + "\n\n" + adminHelp
	}
	o.special = specialOf(c, strings.Join(words, " "))
	switch {
	case op.Lines && o.special == nil:
		o.special = streamLines
		o.add(c, "jsonl")
	case op.Answer != nil && !op.Lines:
		o.add(c, listFormats...)
	default:
		o.add(c)
	}
	if op.Reasoned() {
		o.why(c)
	}
	if d.Callers != "" {
		o.caller.add(c)
		c.Long = strings.TrimPrefix(d.Long+"\n\n"+callerHelp, "\n\n")
	}
	o.flags(c, args)
	if len(args) > 0 {
		c.Annotations = map[string]string{operationInput: argumentName(op, args[0])}
	}
	if d.Sure != "" {
		c.Flags().Bool("yes", false, "confirm")
	}
	for _, name := range d.Must {
		_ = c.MarkFlagRequired(name) // fails for unknown flags only
	}
	c.RunE = func(c *cobra.Command, given []string) error { return o.work(c, given, args) }
	return c
}

func argumentCheck(args []string) cobra.PositionalArgs {
	switch {
	case len(args) == 0:
		return cobra.NoArgs
	case strings.HasSuffix(args[len(args)-1], "..."):
		return cobra.MinimumNArgs(len(args))
	case strings.HasPrefix(args[0], "["):
		return cobra.MaximumNArgs(len(args))
	}
	return cobra.ExactArgs(len(args))
}

// flags adds a flag for each input that is no argument and not fixed.
func (o *operated) flags(c *cobra.Command, args []string) {
	var byArgument []string
	for _, arg := range args {
		byArgument = append(byArgument, argumentName(o.op, arg))
	}
	for _, in := range o.op.Inputs() {
		_, fixed := o.command.Fixed[in.Name]
		if fixed || slices.Contains(byArgument, in.Name) || slices.Contains(o.command.Hide, in.Name) ||
			in.In == "body" && o.command.Only != nil && !slices.Contains(o.command.Only, in.Name) {
			continue
		}
		help := cmp.Or(o.command.Help[in.Name], in.Help)
		in.Flag = o.flagOf(in)
		if in.In == "path" && (o.command.All || o.command.Callers != "") {
			in.Required = false
		}
		switch {
		case in.Name == "org" && o.command.Callers != "":
			help += ", as an administrator (default: act as the API key)"
		case in.Required || slices.Contains(o.command.Must, in.Name):
			help += " (required)"
		}
		if in.In == "body" {
			o.bodyFlag(in, help)
		} else {
			queryFlag(c, in, help)
		}
		if in.Required {
			defer c.MarkFlagRequired(in.Flag) //nolint:errcheck // fails for unknown flags only
		}
	}
	o.body.add(c, o.resets())
}

// resets reports whether the command changes settings, which it can then reset.
func (o *operated) resets() bool {
	return o.op.Method == http.MethodPatch && o.command.Only == nil &&
		slices.ContainsFunc(o.op.Inputs(), func(in admin.Input) bool { return in.Setting })
}

func (o *operated) bodyFlag(in admin.Input, help string) {
	switch in.Kind {
	case admin.Number:
		o.body.number(in.Flag, in.Name, help)
	case admin.Truth:
		o.body.truth(in.Flag, in.Name, help)
	case admin.List:
		o.body.list(in.Flag, in.Name, help)
	case admin.Pairs:
		o.body.pairs(in.Flag, in.Name, help)
	case admin.Until:
		o.body.when(in.Flag, in.Name, help)
	default:
		if in.Value != "" {
			help += " (default " + in.Value + ")"
		}
		o.body.text(in.Flag, in.Name, help)
	}
}

func queryFlag(c *cobra.Command, in admin.Input, help string) {
	switch in.Kind {
	case admin.Switch:
		c.Flags().Bool(in.Flag, false, help)
	case admin.Since:
		c.Flags().Duration(in.Flag, 0, help)
	case admin.Count:
		usual, _ := strconv.Atoi(in.Value)
		c.Flags().Int(in.Flag, usual, help)
	default:
		c.Flags().String(in.Flag, "", help)
	}
	if in.Choices != nil {
		_ = c.RegisterFlagCompletionFunc(in.Flag, cobra.FixedCompletions(in.Choices, cobra.ShellCompDirectiveNoFileComp))
	}
}

// gather reads arguments and flags.
func (o *operated) gather(c *cobra.Command, given, args []string) error {
	for name, value := range o.command.Fixed {
		o.sent[name] = value
	}
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
		if in.In == "body" || c.Flags().Lookup(in.Flag) == nil || o.values[in.Name] != "" {
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

// flagValue returns what the flag of an input of the path or the query sends.
func (o *operated) flagValue(c *cobra.Command, in admin.Input) (string, error) {
	value := c.Flags().Lookup(in.Flag).Value.String()
	switch {
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

// gatherBody reads the flags of the body.
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
	if o.resets() {
		_, err := o.body.body(c, o.sent)
		return err
	}
	if err := o.body.set(c, o.sent); err != nil {
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

// put stores the value of an argument.
func (o *operated) put(name, value string) {
	for _, in := range o.op.Inputs() {
		if in.Name == name && in.In == "body" {
			o.sent[name] = value
			return
		}
	}
	o.values[name] = value
}

// path returns the path and the query of the request.
func (o *operated) path() string {
	path := admin.Fill(o.op.Path, func(name string) string { return url.PathEscape(o.values[name]) })
	q := url.Values{}
	for _, in := range o.op.Inputs() {
		if value := o.values[in.Name]; in.In == "query" && value != "" {
			q.Set(in.Name, value)
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
		if o.special != nil {
			return o.special(c, o, a)
		}
		if o.args != nil && o.sent["subject"] == nil {
			return o.repeat(c, a)
		}
		answer, err := o.ask(c, a)
		if err != nil {
			return err
		}
		return o.show(c, answer)
	})
}

// repeat sends a request for each argument, and prints the answers as a list.
func (o *operated) repeat(c *cobra.Command, a *adminClient) error {
	out := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(o.op.Answer)), 0, len(o.args))
	path := o.pathInputs()
	for _, id := range o.args {
		o.values[path[len(path)-1]] = id
		answer, err := o.ask(c, a)
		if err != nil {
			return err
		}
		out = reflect.Append(out, reflect.ValueOf(answer).Elem())
	}
	return o.list(c, out)
}

// pathInputs lists the names in the path.
func (o *operated) pathInputs() []string {
	var out []string
	for _, in := range o.op.Inputs() {
		if in.In == "path" {
			out = append(out, in.Name)
		}
	}
	return out
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

// show prints an answer.
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
	if data.Len() == 0 && o.command.None != "" {
		fmt.Fprintln(c.ErrOrStderr(), o.command.None)
	}
	return o.list(c, data)
}

// list prints a list.
func (o *operated) list(c *cobra.Command, data reflect.Value) error {
	return render(c.OutOrStdout(), o.output, data.Interface(), func(w io.Writer) error {
		if data.Len() == 0 && o.command.None != "" {
			return nil
		}
		if jobs, ok := data.Interface().([]jobLine); ok {
			return jobTable(w, jobs)
		}
		return tableOf(w, data)
	})
}

// one prints a single answer: a line, a line of a table, or its facts.
func (o *operated) one(w io.Writer, v reflect.Value) error {
	if o.command.Done != "" {
		_, err := fmt.Fprintln(w, o.fill(w, o.command.Done, v.Interface()))
		return err
	}
	if job, ok := v.Interface().(jobLine); ok {
		return jobDetails(w, &job)
	}
	if err := secretOf(w, v); err != nil {
		return err
	}
	if o.op.Writes && len(columnsOf(v.Type())) > 0 && !hasFacts(v.Type()) {
		return tableOf(w, reflect.Append(reflect.MakeSlice(reflect.SliceOf(v.Type()), 0, 1), v))
	}
	return factsOf(w, v)
}

// placeholder is a {name} of a text.
var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// fill replaces the names of inputs and of members of an answer.
func (o *operated) fill(w io.Writer, text string, answer any) string {
	members := membersOf(w, answer)
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		if value, ok := members[name]; ok {
			return value
		}
		if value, ok := o.sent[name]; ok {
			return fmt.Sprint(value)
		}
		return o.values[name]
	})
}

// set adds the flags that were given to a body.
func (s *fields) set(c *cobra.Command, body map[string]any) error {
	for _, f := range s.all {
		if !c.Flags().Changed(f.flag) {
			continue
		}
		v, err := f.value(c)
		if err != nil {
			return err
		}
		if v == "" {
			return misused("--%s is empty; leave it out or give it a value", f.flag)
		}
		setMember(body, f.member, v)
	}
	return nil
}
