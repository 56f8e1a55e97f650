package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/escape"
)

// runFlags say where runs are: those of an API key, or with --org all of an org.
type runFlags struct {
	adminFlags
	org, url, apiKey string
}

const runHelp = "With --org, these commands work on all runs of an org, as an administrator. Without it, they work on the runs of an API key,\n" +
	"from --key and --url, or OPENAI_API_KEY and OPENAI_BASE_URL."

func (f *runFlags) add(c *cobra.Command) {
	f.adminFlags.add(c, listFormats...)
	c.Flags().StringVar(&f.org, "org", "", "the org, as an administrator (default: act as the API key)")
	c.Flags().StringVar(&f.url, "url", envOr("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
		"base URL of llmguard, with /v1")
	c.Flags().StringVar(&f.apiKey, "key", "", "API key that gives the budget (default: OPENAI_API_KEY)")
}

// run calls do with a client of the admin API, or of the API key's own.
func (f *runFlags) run(c *cobra.Command, do func(*adminClient) error) error {
	if f.org != "" {
		return f.adminFlags.run(c, do)
	}
	if f.reason != "" {
		return misused("--reason needs --org: it goes into the audit of an administrator's change")
	}
	key := cmp.Or(f.apiKey, os.Getenv("OPENAI_API_KEY"))
	if key == "" {
		return errors.New("no API key: set OPENAI_API_KEY or --key, or --org to act as an administrator")
	}
	client, err := client(f.caFile, askTime)
	if err != nil {
		return err
	}
	base, root := strings.TrimSuffix(strings.TrimRight(f.url, "/"), "/v1"), "/v1"
	return do(&adminClient{do: client.Do, base: base, root: root, key: key, close: client.CloseIdleConnections})
}

// path returns the path of runs, or of one.
func (f *runFlags) path(id ...string) string {
	if f.org != "" {
		return pathOf(append([]string{"orgs", f.org, "runs"}, id...)...)
	}
	return pathOf(append([]string{"keys", "children"}, id...)...)
}

// show sends a request for a run and prints it, its key first.
func (f *runFlags) show(c *cobra.Command, method, path string, body any) error {
	return f.run(c, func(a *adminClient) error {
		var r guard.RunView
		if err := a.ask(c.Context(), method, path, body, &r); err != nil {
			return err
		}
		return render(c.OutOrStdout(), f.output, r, func(w io.Writer) error {
			if r.Key != "" {
				fmt.Fprintf(w, "key (shown only once): %s\n\n", r.Key)
			}
			return runFacts(w, &r)
		})
	})
}

func runFacts(w io.Writer, r *guard.RunView) error {
	concurrency := "any"
	if r.Concurrency > 0 {
		concurrency = strconv.FormatInt(r.Concurrency, 10)
	}
	return facts(w, "id", r.ID, "name", escape.Text(textOf(r.Name)), "status", r.Status, "amount", decimalUSD(w, r.Amount),
		"spent", decimalUSD(w, r.Spent), "held", decimalUSD(w, r.Held), "remaining", decimalUSD(w, r.Remaining),
		"org", r.Org, "user", r.User,
		"given by", cmp.Or(textOf(r.Parent), "key "+r.ParentKey), "key ends with", textOf(r.Last4), "models", all(r.Models),
		"labels", pairsText(r.Labels), "concurrency", concurrency, "created (UTC)", unixDay(&r.Created),
		"expires (UTC)", unixDay(&r.Expires), "ended (UTC)", unixDay(r.Ended))
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// unixDay formats Unix seconds in UTC.
func unixDay(n *int64) string {
	if n == nil {
		return ""
	}
	at := time.Unix(*n, 0)
	return day(&at, "")
}

func keysChildCommand() *cobra.Command {
	var f runFlags
	var amount, expires, name, parent string
	var models []string
	var labels labelFilter
	var concurrency int64
	c := &cobra.Command{
		Use: "child", Short: "Give a part of a key's budget to a run, with a key of its own",
		Long: "Prints a key whose calls end with run_budget_reached when the amount is used up. It has the user, limits, models and labels\n" +
			"of the key that gives the budget.\n\n" + runHelp,
		Args: cobra.NoArgs,
		Example: "  llmguard keys child --amount '$5' --expires 2h --models 'gpt-4o*' --label run=abc\n" +
			"  llmguard keys child --org acme --parent alice-1 --amount '$5'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if (f.org == "") != (parent == "") {
			return misused("--org and --parent go together: the org and the key that gives the budget")
		}
		if f.reason != "" && f.org == "" {
			return misused("--reason needs --org and --parent: it goes into the audit of an administrator's change")
		}
		body := map[string]any{"amount": amount}
		for member, value := range map[string]string{"expires_in": expires, "name": name, "reason": f.reason} {
			if value != "" {
				body[member] = value
			}
		}
		if len(models) > 0 {
			body["models"] = models
		}
		if concurrency != 0 {
			body["concurrency"] = concurrency
		}
		values, err := labels.values()
		if err != nil {
			return err
		}
		if len(values) > 0 {
			body["labels"] = values
		}
		path := f.path()
		if parent != "" {
			path = pathOf("orgs", f.org, "keys", parent, "children")
		}
		f.reason = "" // it is in the body
		return f.show(c, http.MethodPost, path, body)
	}
	f.add(c)
	f.why(c)
	flags := c.Flags()
	flags.StringVar(&amount, "amount", "", "what the run may spend, such as $5 (required)")
	flags.StringVar(&expires, "expires", "", "duration until it ends, such as 2h (default: 1d)")
	flags.StringVar(&name, "name", "", "name of the run (default: its label run)")
	flags.StringVar(&parent, "parent", "", "with --org: the key that gives the budget")
	flags.StringSliceVar(&models, "models", nil, "allowed models within the key's, as comma-separated patterns")
	flags.Int64Var(&concurrency, "concurrency", 0, "maximum number of open calls (default: any)")
	labels.add(c, "value of a label for all calls of the run, as name=value (repeat for several)")
	_ = c.MarkFlagRequired("amount")
	return c
}

func runsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "runs", Short: "List the budgets of runs, add to them and end them",
		Long: "A run is an amount that a key gave away: see `llmguard keys child`.\n\n" + runHelp,
		Example: "  llmguard runs list\n" +
			"  llmguard runs top-up run_k3v5hd7q2mzx4abc --add '$5'\n" +
			"  llmguard runs list --org acme",
	}
	c.AddCommand(runsListCommand(), runCommand("show", "Show a run: what it spent and what is left", http.MethodGet),
		runsTopUpCommand(), runCommand("end", "End a run, so that its further calls are refused", http.MethodDelete))
	return c
}

func runsListCommand() *cobra.Command {
	var f runFlags
	var parent string
	c := &cobra.Command{
		Use: "list", Short: "List open runs, and those that ended within the last hour", Args: cobra.NoArgs,
		Example: "  llmguard runs list\n  llmguard runs list --org acme --parent alice-1",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		path := f.path()
		if parent != "" {
			if f.org == "" {
				return misused("--parent needs --org")
			}
			path += "?key=" + url.QueryEscape(parent)
		}
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []guard.RunView `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, path, nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return runTable(w, l.Data) })
		})
	}
	f.add(c)
	c.Flags().StringVar(&parent, "parent", "", "with --org: only those that this key gave a budget to")
	return c
}

func runTable(w io.Writer, list []guard.RunView) error {
	g := grid{
		head:    []string{"id", "name", "user", "status", "amount", "spent", "remaining", "expires"},
		numbers: []bool{false, false, false, false, true, true, true, false},
	}
	for i := range list {
		r := &list[i]
		g.add(r.ID, escape.Text(textOf(r.Name)), r.User, r.Status, decimalUSD(w, r.Amount), decimalUSD(w, r.Spent),
			decimalUSD(w, r.Remaining),
			unixDay(&r.Expires))
	}
	return g.write(w)
}

func runCommand(verb, short, method string) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: verb + " RUN", Short: short, Args: cobra.ExactArgs(1),
		Example: "  llmguard runs " + verb + " run_k3v5hd7q2mzx4abc\n  llmguard runs " + verb + " run_k3v5hd7q2mzx4abc --org acme",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if method == http.MethodDelete && f.org != "" {
			return f.show(c, http.MethodPost, f.path(args[0], "end"), nil)
		}
		return f.show(c, method, f.path(args[0]), nil)
	}
	f.add(c)
	if method == http.MethodDelete {
		f.why(c)
	}
	return c
}

func runsTopUpCommand() *cobra.Command {
	var f runFlags
	var add string
	c := &cobra.Command{
		Use: "top-up RUN", Short: "Add to the budget of a run, so that its calls continue", Args: cobra.ExactArgs(1),
		Example: "  llmguard runs top-up run_k3v5hd7q2mzx4abc --add '$5'\n" +
			"  llmguard runs top-up run_k3v5hd7q2mzx4abc --add '$5' --org acme --reason 'release'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, path := map[string]any{"add_amount": add}, f.path(args[0])
		if f.org != "" {
			path = f.path(args[0], "top-up")
		}
		return f.show(c, http.MethodPost, path, body)
	}
	f.add(c)
	f.why(c)
	c.Flags().StringVar(&add, "add", "", "the amount to add, such as $5 (required)")
	_ = c.MarkFlagRequired("add")
	return c
}
