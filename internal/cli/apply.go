package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/simulate"
)

// exitChanges is the exit code when the plan contains changes.
const exitChanges = 2

type applyFlags struct {
	adminFlags
	files  []string
	dryRun bool
	prune  bool
	replay int
}

func applyCommand() *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use: "apply", Short: "Apply orgs, users, keys and limits declared in files", Args: cobra.NoArgs,
		Long: "Reads orgs with their users, keys and limits in the format of the configuration (`llmguard config export` prints it),\n" +
			"prints the differences from what is in force, and applies them. Values are stored in Redis and override the configuration\n" +
			"file; anything that a file omits stays unchanged. Applying the same files again changes nothing, and each change is\n" +
			"recorded in the audit.\n\n" +
			"--prune also deletes users, keys and limits that exist in Redis but not in the files, for the orgs in the files. Only\n" +
			"`llmguard orgs delete` deletes an org. A key without a hash is created if its id is new, and shown once. The plan includes\n" +
			"a replay of recent calls under the current and the declared limits.\n\n" +
			"Exit codes: 0 no differences, or all applied; 1 error; 2 with --dry-run, there are differences.\n\n" +
			adminHelp,
		Example: "  llmguard apply -f orgs.yaml --dry-run\n" +
			"  llmguard apply -f orgs.yaml --reason 'new team'\n" +
			"  llmguard config export | llmguard apply -f - --dry-run",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error { return f.apply(c, a) })
	}
	f.add(c, plainFormats...)
	f.why(c, false)
	fl := c.Flags()
	fl.StringArrayVarP(&f.files, "file", "f", nil,
		"a file, a directory with .yaml, .yml and .json files, or - for standard input; repeatable (required)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the plan and change nothing")
	fl.BoolVar(&f.prune, "prune", false, "also delete users, keys and limits in Redis that the files do not declare")
	fl.IntVar(&f.replay, "replay-days", 7, "days of calls to replay (0: none)")
	_ = c.MarkFlagRequired("file")
	return c
}

func (f *applyFlags) apply(c *cobra.Command, a *adminClient) error {
	orgs, err := readDeclared(f.files, c.InOrStdin())
	if err != nil {
		return err
	}
	plans := make([]admin.Plan, len(orgs))
	differ := false
	for i, org := range orgs {
		plans[i], err = f.send(c.Context(), a, org, true, f.replay)
		if err != nil {
			return fmt.Errorf("org %s: %w", org["id"], err)
		}
		differ = differ || len(plans[i].Changes) > 0
	}
	if f.output != "table" && !f.dryRun && differ {
		return errors.New("-o needs --dry-run: what is applied is printed as a table, the plan first")
	}
	if err := render(c.OutOrStdout(), f.output, plans, func(w io.Writer) error {
		return planTable(w, plans)
	}); err != nil {
		return err
	}
	switch {
	case !differ:
		return nil
	case f.dryRun:
		return exit(exitChanges)
	}
	for i, org := range orgs {
		if len(plans[i].Changes) == 0 {
			continue
		}
		done, err := f.send(c.Context(), a, org, false, 0)
		fmt.Fprintf(c.OutOrStdout(), "\napplied %s to org %s\n", plural(len(done.Changes), "change"), org["id"])
		for _, k := range done.Keys {
			fmt.Fprintf(c.OutOrStdout(), "key %s of user %s (shown only once): %s\n", k.ID, k.User, k.Secret)
		}
		if err != nil {
			return fmt.Errorf("org %s was only partly applied. Run the same command again; if a key was created and its secret "+
				"was not shown, use `llmguard keys rotate`: %w", org["id"], err)
		}
	}
	return nil
}

func (f *applyFlags) send(ctx context.Context, a *adminClient, org map[string]any, dryRun bool,
	replay int,
) (admin.Plan, error) {
	var plan admin.Plan
	id, _ := org["id"].(string)
	if id == "" {
		return plan, errors.New("an org without an id")
	}
	body := map[string]any{"org": org, "dry_run": dryRun, "prune": f.prune, "replay_days": replay}
	err := a.ask(ctx, http.MethodPost, pathOf("orgs", id, "apply"), body, &plan)
	if refused, ok := errors.AsType[*refusal](err); ok { // changes made before the refusal
		_ = json.Unmarshal(refused.answer, &plan)
	}
	return plan, err
}

// planTable prints the differences and how recent calls would have fared.
func planTable(w io.Writer, plans []admin.Plan) error {
	marks := map[string]string{"create": "+", "update": "~", "delete": "-"}
	changes := 0
	for _, p := range plans {
		for _, one := range p.Changes {
			changes++
			name := p.Org
			if one.User != "" {
				name += "/" + one.User
			}
			if one.Kind != "org" {
				name += "/" + one.ID
			}
			fmt.Fprintf(w, "%s %s %s %s\n", marks[one.Action], one.Action, one.Kind, name)
			for _, field := range one.Fields {
				before := field.Before
				if before == "" {
					before = "not set"
				}
				fmt.Fprintf(w, "    %s: %s -> %s\n", field.Name, escape.Text(before), escape.Text(field.After))
			}
		}
	}
	if changes == 0 {
		_, err := fmt.Fprintln(w, "no changes")
		return err
	}
	fmt.Fprintf(w, "\n%s\n", plural(changes, "change"))
	for _, p := range plans {
		for _, text := range p.Warnings {
			fmt.Fprintf(w, "warning: org %s: %s\n", p.Org, escape.Text(text))
		}
		if err := replayTable(w, p.Org, p.Replay); err != nil {
			return err
		}
	}
	return nil
}

func replayTable(w io.Writer, org string, r *admin.Replay) error {
	if r == nil {
		return nil
	}
	if r.Before.Calls == 0 {
		_, err := fmt.Fprintf(w, "\norg %s: no calls in the last %s to replay\n", org, plural(r.Days, "day"))
		return err
	}
	which := "the calls"
	if r.Cut {
		which = "the newest calls"
	}
	fmt.Fprintf(w, "\norg %s: %s of the last %s, replayed\n", org, which, plural(r.Days, "day"))
	err := lineTable(w, []string{"policy"}, [][]string{{"current"}, {"declared"}}, []simulate.Line{r.Before, r.After})
	if err != nil || len(r.Users) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nheld back under the declared limits")
	var names [][]string
	for _, l := range r.Users {
		names = append(names, []string{userOf(org, l.User)})
	}
	return lineTable(w, []string{"user"}, names, r.Users)
}

// readDeclared reads the orgs of all files. An org may be declared in one file only.
func readDeclared(names []string, stdin io.Reader) ([]map[string]any, error) {
	var out []map[string]any
	seen := map[string]string{}
	for _, name := range names {
		paths, err := declaredFiles(name)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			orgs, err := readDeclaredFile(path, stdin)
			if err != nil {
				return nil, err
			}
			for _, org := range orgs {
				id, _ := org["id"].(string)
				if before := seen[id]; before != "" {
					return nil, fmt.Errorf("%s: org %s is also declared in %s", path, id, before)
				}
				seen[id] = path
				out = append(out, org)
			}
		}
	}
	return out, nil
}

// declaredFiles expands a name into files.
func declaredFiles(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name()))) {
			out = append(out, filepath.Join(name, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no .yaml, .yml or .json file", name)
	}
	return out, nil
}
