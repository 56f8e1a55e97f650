package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants"
)

func limitsShadowCommand() *cobra.Command {
	var f traceFlags
	c := &cobra.Command{
		Use: "shadow", Short: "Report what limits in shadow mode would have done", Args: cobra.NoArgs,
		Long: "A limit in shadow mode counts calls without refusing them. The ledger entry of a call records which of these limits the\n" +
			"call exceeded. This report sums up how many calls would have waited, for how long, and how many would have been refused.\n\n" +
			"No call actually waited, so an enforced limit would hold back fewer calls, each for longer; `llmguard simulate` estimates\n" +
			"how many. Calls that never ran are not in the ledger. A limit counts from the time it first had its current amount and\n" +
			"window in shadow mode.",
		Example: "  llmguard limits shadow --days 7\n  llmguard limits shadow --log november.jsonl -o csv",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.showShadow(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.add(c, listFormats...)
	return c
}

var shadowCSV = columnsOf(reflect.TypeFor[simulate.ShadowLine](), "limit:limit", "org:org", "user:user;text",
	"would_wait:would_wait", "wait_p50_ms:wait_p50_ms;int", "wait_p95_ms:wait_p95_ms;int", "wait_max_ms:wait_max_ms;int",
	"would_refuse:would_refuse")

func (f *traceFlags) showShadow(ctx context.Context, stdin io.Reader, w, notes io.Writer) error {
	var s simulate.Shadow
	if err := f.countShadow(ctx, &s, stdin); err != nil {
		return err
	}
	report := s.Report()
	switch f.usage.output {
	case "json", "yaml":
		return render(w, f.usage.output, report, nil)
	case "jsonl":
		return render(w, "jsonl", report.Lines, nil)
	case "csv":
		return csvOf(w, report.Lines, shadowCSV)
	}
	if report.HeldBack == 0 {
		fmt.Fprintf(notes, "no limit in shadow mode would have held back any of %s\n", plural(report.Calls, "call"))
		return nil
	}
	fmt.Fprintf(w, "%d of %s would have been held back\n\n", report.HeldBack, plural(report.Calls, "call"))
	if err := shadowTable(w, report.Limits); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return shadowTable(w, report.Lines)
}

func (f *traceFlags) countShadow(ctx context.Context, s *simulate.Shadow, stdin io.Reader) error {
	if len(f.logs) > 0 {
		return f.eachFile(stdin, func(name string, in io.Reader) error { return s.Read(ctx, name, in) })
	}
	from, to, err := f.usage.period.bounds(time.Now())
	if err != nil {
		return err
	}
	l, err := f.usage.open(ctx, false)
	if err != nil {
		return err
	}
	defer l.close()
	s.Made, err = l.shadowLimits(ctx)
	if err != nil {
		return err
	}
	return l.Entries(ctx, from, to, s.Entry)
}

// eachFile calls fn with each --log file.
func (f *traceFlags) eachFile(stdin io.Reader, fn func(name string, in io.Reader) error) error {
	for _, path := range f.logs {
		name, file, err := opened(path, stdin)
		if err != nil {
			return err
		}
		err = fn(name, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// shadowLimits returns, by org and limit name, since when each limit in shadow mode has
// existed: since its present form was first recorded, or else since its runtime record was
// created. For limits of the same name the first counts. The zero time means earlier than any
// record.
func (l *ledgers) shadowLimits(ctx context.Context) (map[string]map[string]time.Time, error) {
	every, err := l.recorded(ctx, everyOrg)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]time.Time{}
	for _, org := range l.orgs {
		out[org], err = l.shadowOf(ctx, org, every)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// shadowOf is shadowLimits for one org. every holds the creation times of limits that apply to
// all orgs.
func (l *ledgers) shadowOf(ctx context.Context, org string, every map[string]time.Time) (map[string]time.Time, error) {
	d, err := get[admin.Declaration](ctx, l.adminClient, pathOf("orgs", org, "declaration"))
	if err != nil {
		return nil, err
	}
	own, err := l.recorded(ctx, org)
	if err != nil {
		return nil, err
	}
	made := maps.Clone(every)
	maps.Copy(made, own)
	out := map[string]time.Time{}
	if err := l.shadowIn(ctx, pathOf("orgs", org, "limits"), made, out); err != nil {
		return nil, err
	}
	for _, u := range d.Users {
		if !slices.ContainsFunc(u.Limits, shadowed) {
			continue
		}
		if err := l.shadowIn(ctx, pathOf("orgs", org, "limits")+"?"+query("user", u.ID), made, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func shadowed(l admin.DeclaredLimit) bool { return l.Fields.Text("mode") == string(budget.Shadow) }

// shadowIn adds the shadow-mode limits of one list.
func (l *ledgers) shadowIn(ctx context.Context, path string, made, out map[string]time.Time) error {
	limits, err := list[admin.Limit](ctx, l.adminClient, path)
	if err != nil {
		return err
	}
	for _, one := range limits {
		if one.Mode != string(budget.Shadow) {
			continue
		}
		since := made[one.Name]
		if one.ShadowSince != nil {
			since = *one.ShadowSince
		}
		if known, there := out[one.Name]; !there || since.Before(known) {
			out[one.Name] = since
		}
	}
	return nil
}

// recorded returns when the runtime limits of an org, or of everyOrg, were created, the first
// of each name.
func (l *ledgers) recorded(ctx context.Context, org string) (map[string]time.Time, error) {
	t, err := get[tenants.Tenant](ctx, l.adminClient, pathOf("orgs", org, "records"))
	if err != nil {
		return nil, err
	}
	made := map[string]time.Time{}
	for id, r := range t.Limits {
		_, name := tenants.SplitLimitID(id)
		if at, known := made[name]; !known || r.Created.Before(at) {
			made[name] = r.Created
		}
	}
	return made, nil
}
