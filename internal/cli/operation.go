package cli

import (
	"cmp"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmguard/llmguard/internal/admin"
)

// operated is a run of a command that the table of operations describes.
type operated struct {
	adminFlags
	op      *admin.Operation
	command admin.Command
	body    fields            // flags for members of the body
	period  period            // of a command with from and to
	orgs    string            // --org of a command with Orgs
	caller  callerFlags       // of a command with Callers
	special worker            // nil: one request with one answer
	values  map[string]string // inputs of the path and the query, by name
	sent    map[string]any    // the body
	args    []string          // those after the first, of a command that repeats
	columns []shownField      // of a table; nil: those of the answer's type
}

type worker func(*cobra.Command, *operated, *adminClient) error

// specialOf returns the worker of a command whose work is not one request with one answer, with its flags; nil: it is.
func specialOf(c *cobra.Command, words string) worker {
	switch words {
	case "audit":
		return auditWorker(c)
	case "queue":
		return queueWorker(c)
	case "config reload":
		c.Flags().Bool("all", false, "every proxy and worker")
	case "jobs replay":
		c.Flags().String("org", "", "only these orgs, separated by commas; default: all")
	case "limits reopen":
		c.Flags().Bool("all", false, "every org and the spend caps")
	case "limits reset":
		c.Flags().Bool("all", false, "reset several counters: see above")
		c.Flags().Bool("yes", false, "confirm --all")
	case "orgs purge":
		c.Flags().Bool("yes", false, "confirm")
	case "prices calibration":
		c.Flags().String("model", "*", "only models that match this pattern (* matches any characters)")
	}
	return map[string]worker{
		"batches cancel": cancelBatches, "config reload": reloadConfig, "jobs cancel": cancelJobs, "jobs replay": replayJobs,
		"jobs watch": watchJob, "limits get": getLimits, "limits reopen": reopenLimits, "limits reset": resetLimits,
		"limits set": setLimit, "orgs create": createOrg, "orgs credentials set": setCredential, "orgs purge": purgeOrg,
		"prices calibration": showCalibration, "queue resume": resumePool, "resume": resumeSpending, "stop": stopSpending,
		"usage adjust": adjustBill, "usage reconcile charge": resolveCharge, "why": explainWhy,
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
	if slices.ContainsFunc(op.Inputs(), func(in admin.Input) bool { return in.Name == "id" }) {
		return "id" // of what is created
	}
	return name
}

func operationCommand(op *admin.Operation, d admin.Command) *cobra.Command {
	o := &operated{op: op, command: d, values: map[string]string{}, sent: map[string]any{}}
	words, args := wordsOf(d.Use)
	c := &cobra.Command{
		Use: strings.Join(append(words[len(words)-1:], args...), " "), Short: cmp.Or(d.Short, op.Summary),
		Example: "  llmguard " + strings.ReplaceAll(d.Example, "\n", "\n  llmguard "), Args: argumentCheck(args),
	}
	if d.Use == "limits get [LIMIT]" {
		c.Aliases = []string{"list"} // as of other groups
	}
	if d.Long != "" {
		c.Long = d.Long + "\n\n" + adminHelp
	}
	if t, _ := op.Listed(); len(d.Columns) > 0 {
		o.columns = columnsOf(t, d.Columns...)
	}
	o.special = specialOf(c, strings.Join(words, " "))
	switch {
	case op.Lines && o.special == nil && d.Orgs == "":
		o.special = streamLines
		o.add(c, "jsonl")
	case op.Answer != nil && (!op.Lines || d.Orgs != ""):
		o.add(c, listFormats...)
	default:
		o.add(c)
	}
	if op.Reasoned() {
		o.why(c, slices.Contains(d.Must, "reason"))
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
		case in.Kind == admin.Period:
			if in.Name == "from" {
				o.period.add(c)
			}
			continue
		case in.Name == "org" && o.command.Orgs != "":
			c.Flags().StringVar(&o.orgs, "org", "", orgsHelp[o.command.Orgs])
			continue
		case in.Name == "org" && o.command.Callers != "":
			help += ", as an administrator (default: act as the API key)"
		case in.Required || slices.Contains(o.command.Must, in.Name):
			help += " (required)"
		}
		if in.In == "body" {
			o.body.flag(c, in, help)
		} else {
			queryFlag(c, in, help)
		}
		if in.Required {
			defer c.MarkFlagRequired(in.Flag) //nolint:errcheck // fails for unknown flags only
		}
	}
	if o.resets() {
		o.body.resettable(c)
	}
}

// orgsHelp describes --org, by how a command finds its orgs.
var orgsHelp = map[string]string{
	"each": "comma-separated orgs (default: all)", "ledgers": "comma-separated orgs (default: all)",
	"one": "the org (default: the only one)",
}

func (o *operated) flagOf(in admin.Input) string { return cmp.Or(o.command.Flags[in.Name], in.Flag) }

// resets reports whether the command changes settings, which it can then reset.
func (o *operated) resets() bool {
	return o.op.Method == http.MethodPatch && o.command.Only == nil &&
		slices.ContainsFunc(o.op.Inputs(), func(in admin.Input) bool { return in.Setting })
}

func queryFlag(c *cobra.Command, in admin.Input, help string) {
	switch in.Kind {
	case admin.Switch:
		c.Flags().Bool(in.Flag, false, help)
	case admin.Pairs:
		c.Flags().StringArray(in.Flag, nil, help)
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

// callerFlags say whose API key a command uses without --org.
type callerFlags struct{ url, key string }

const callerHelp = "With --org, it works on all runs of an org, as an administrator. Without it, it works on the runs of an API key,\n" +
	"from --key and --url, or OPENAI_API_KEY and OPENAI_BASE_URL."

func (f *callerFlags) add(c *cobra.Command) {
	urlFlag(c.Flags(), &f.url)
	c.Flags().StringVar(&f.key, "key", "", "API key that gives the budget (default: OPENAI_API_KEY)")
}

// urlFlag adds the address of the callers' API.
func urlFlag(flags *pflag.FlagSet, url *string) {
	usual := cmp.Or(os.Getenv("OPENAI_BASE_URL"), "http://127.0.0.1:8080/v1")
	flags.StringVar(url, "url", usual, "base URL of llmguard, with /v1")
}

// asCaller makes the request of the callers' own API, with an API key, if the command has one and no org is named.
func (o *operated) asCaller(c *cobra.Command, do func(*adminClient) error) error {
	for _, in := range o.op.Inputs() {
		if name := o.flagOf(in); in.In != "body" && in.Name != "org" && c.Flags().Changed(name) {
			return misused("--%s needs --org", name)
		}
	}
	if o.reason != "" {
		return misused("--reason needs --org: it goes into the audit of an administrator's change")
	}
	key := cmp.Or(o.caller.key, os.Getenv("OPENAI_API_KEY"))
	if key == "" {
		return errors.New("no API key: set OPENAI_API_KEY or --key, or --org to act as an administrator")
	}
	client, err := client(o.caFile, askTime)
	if err != nil {
		return err
	}
	op := *o.op
	op.Method, op.Path, _ = strings.Cut(o.command.Callers, " ")
	o.op = &op
	base, root := strings.TrimSuffix(strings.TrimRight(o.caller.url, "/"), "/v1"), "/v1"
	return do(&adminClient{do: client.Do, base: base, root: root, key: key, close: client.CloseIdleConnections})
}
